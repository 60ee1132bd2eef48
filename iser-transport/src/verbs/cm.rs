//! The connection manager: event channels, identifiers, and requests to connect.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::ptr::null_mut;
use std::sync::Arc;
use std::task::{Context, Poll};

use rdma_sys::{
    ibv_context, rdma_cm_event, rdma_cm_event_type, rdma_cm_id, rdma_event_channel, rdma_port_space,
};

use super::channel::Readable;
use super::device::{Device, Devices};
use super::ffi::{Library, check};

/// A channel for events of identifiers, which are destroyed before it.
#[derive(Debug)]
pub(super) struct Channel {
    library: &'static Library,
    raw: *mut rdma_event_channel,
}

/// A channel that is listened to.
#[derive(Debug)]
pub(super) struct EventChannel {
    /// Dropped before the channel is.
    readable: Option<Readable>,
    channel: Channel,
}

/// What an event says, copied before it is acknowledged.
#[derive(Debug)]
pub(super) struct CmEvent {
    pub(super) kind: rdma_cm_event_type::Type,
    pub(super) status: i32,
    pub(super) id: *mut rdma_cm_id,
    /// Of requests: what the peer sent along, and how many reads it serves.
    pub(super) private_data: Vec<u8>,
    pub(super) reads_max: u8,
}

/// An identifier: one end of a connection, or a listener.
#[derive(Debug)]
pub(super) struct CmId {
    library: &'static Library,
    raw: *mut rdma_cm_id,
}

/// Somebody wants to connect. Dropped without an answer, it is rejected.
#[derive(Debug)]
pub struct ConnectRequest {
    pub(super) devices: Arc<Devices>,
    /// Taken when the request is answered.
    id: Option<CmId>,
    /// The listener's, which the identifier stays on until it is migrated; the listener may be gone by then.
    _channel: Arc<EventChannel>,
    pub(super) reads_max: u8,
    private_data: Vec<u8>,
    local: SocketAddr,
    peer: SocketAddr,
}

// SAFETY: the functions of librdmacm may be called from any thread; a channel is used by one at a time.
unsafe impl Send for Channel {}
// SAFETY: nothing is reached through a shared reference.
unsafe impl Sync for Channel {}
// SAFETY: as above.
unsafe impl Send for CmId {}
// SAFETY: as above.
unsafe impl Sync for CmId {}

impl Channel {
    pub(super) fn new(library: &'static Library) -> io::Result<Self> {
        // SAFETY: no arguments.
        let raw = unsafe { (library.rdma_create_event_channel)() };
        if raw.is_null() {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { library, raw })
    }
}

impl EventChannel {
    pub(super) fn new(library: &'static Library) -> io::Result<Self> {
        let mut channel = Self {
            readable: None,
            channel: Channel::new(library)?,
        };
        channel.watch()?;
        Ok(channel)
    }

    /// Is heard in the runtime of this thread.
    pub(super) fn watch(&mut self) -> io::Result<()> {
        self.readable = None;
        // SAFETY: the channel is open, and is destroyed after `readable`.
        self.readable = Some(unsafe { Readable::new((*self.channel.raw).fd) }?);
        Ok(())
    }

    pub(super) fn channel(&self) -> &Channel {
        &self.channel
    }

    pub(super) fn poll_event(&self, cx: &mut Context<'_>) -> Poll<io::Result<CmEvent>> {
        let Channel { library, raw } = &self.channel;
        let readable = self.readable.as_ref().expect("set when it was created");
        readable.poll_with(cx, || {
            let mut event = null_mut();
            // SAFETY: the channel is open; on success the event is ours until it is acknowledged.
            check(unsafe { (library.rdma_get_cm_event)(*raw, &raw mut event) })?;
            // SAFETY: as above.
            let copy = unsafe { copy(event) };
            // SAFETY: acknowledged once, and not used afterwards.
            unsafe { (library.rdma_ack_cm_event)(event) };
            Ok(copy)
        })
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: identifiers on the channel are destroyed before it: whoever has one has the channel too, in a later field.
        unsafe { (self.library.rdma_destroy_event_channel)(self.raw) };
    }
}

impl CmId {
    /// A new one, with an address of ours.
    pub(super) fn bound(
        library: &'static Library,
        channel: &Channel,
        address: SocketAddr,
    ) -> io::Result<Self> {
        let mut raw = null_mut();
        let space = rdma_port_space::RDMA_PS_TCP;
        // SAFETY: the channel is open; the place for the result is ours.
        check(unsafe { (library.rdma_create_id)(channel.raw, &raw mut raw, null_mut(), space) })?;
        let id = Self { library, raw };
        let mut storage = storage_of(address);
        // SAFETY: the identifier is ours, the address is valid for the call.
        check(unsafe { (library.rdma_bind_addr)(raw, (&raw mut storage).cast()) })?;
        Ok(id)
    }

    pub(super) fn raw(&self) -> *mut rdma_cm_id {
        self.raw
    }

    /// Moves its events to a channel of its own.
    pub(super) fn migrate(&self, channel: &Channel) -> io::Result<()> {
        // SAFETY: both channels are open, and no event of the identifier waits for its acknowledgement.
        check(unsafe { (self.library.rdma_migrate_id)(self.raw, channel.raw) })
    }
}

impl Drop for CmId {
    fn drop(&mut self) {
        // SAFETY: all of its events have been acknowledged; its queue pair, if it had one, was destroyed.
        unsafe { (self.library.rdma_destroy_id)(self.raw) };
    }
}

impl ConnectRequest {
    /// # Safety
    /// `event` is a connection request that came over `channel`, and nobody else owns its identifier.
    pub(super) unsafe fn new(
        devices: Arc<Devices>,
        channel: Arc<EventChannel>,
        event: CmEvent,
    ) -> Option<Self> {
        let library = devices.library();
        let id = CmId {
            library,
            raw: event.id,
        };
        // SAFETY: the caller's; the route is filled in before the event is told.
        let (local, peer) = unsafe {
            let address = &(*id.raw).route.addr;
            (
                address_of(&address.src_addr_union.src_storage),
                address_of(&address.dst_addr_union.dst_storage),
            )
        };
        Some(Self {
            devices,
            reads_max: event.reads_max,
            private_data: event.private_data,
            local: local?,
            peer: peer?,
            id: Some(id),
            _channel: channel,
        })
    }

    /// The device that it came through, opened if it is new.
    pub(super) fn device(&self) -> io::Result<Arc<Device>> {
        self.devices.device(self.context(), self.local)
    }

    /// That device is in use already.
    pub(super) fn has_device(&self) -> bool {
        self.devices.is_open(self.context())
    }

    fn context(&self) -> *mut ibv_context {
        // SAFETY: the identifier is ours; a request came through a device.
        unsafe { (*self.id().raw()).verbs }
    }

    /// Our address.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// The other end's address.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// What the peer sent along; padded with zeroes on some fabrics.
    #[must_use]
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// RDMA READs that the peer serves at once.
    #[must_use]
    pub fn reads_max(&self) -> u8 {
        self.reads_max
    }

    /// Its identifier goes to the connection, which answers.
    pub(super) fn into_parts(mut self) -> (CmId, Arc<Devices>, u8) {
        let id = self.id.take().expect("there until the request is answered");
        (id, Arc::clone(&self.devices), self.reads_max)
    }

    pub(super) fn id(&self) -> &CmId {
        self.id.as_ref().expect("there until the request is answered")
    }
}

impl Drop for ConnectRequest {
    fn drop(&mut self) {
        if let Some(id) = &self.id {
            // SAFETY: the identifier is still there, and was not answered.
            unsafe { (id.library.rdma_reject)(id.raw, std::ptr::null(), 0) };
        }
    }
}

/// # Safety
/// `event` was just received and not acknowledged.
unsafe fn copy(event: *mut rdma_cm_event) -> CmEvent {
    // SAFETY: the caller's.
    let event = unsafe { &*event };
    let (mut private_data, mut reads_max) = (Vec::new(), 0);
    if event.event == rdma_cm_event_type::RDMA_CM_EVENT_CONNECT_REQUEST {
        // SAFETY: the parameters of a connection request are of this kind, and their data so long.
        unsafe {
            let param = &event.param.conn;
            // In the event the fields tell what we may do: our reads are served by the peer's responder resources.
            reads_max = param.initiator_depth;
            if !param.private_data.is_null() {
                let data = param.private_data.cast::<u8>();
                private_data = std::slice::from_raw_parts(data, param.private_data_len.into()).to_vec();
            }
        }
    }
    CmEvent {
        kind: event.event,
        status: event.status,
        id: event.id,
        private_data,
        reads_max,
    }
}

/// The address that a socket address holds, if it is one of the Internet's.
fn address_of(storage: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match i32::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says that it is one, and the storage has room for it.
            let address = unsafe { &*(&raw const *storage).cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr));
            Some(SocketAddr::new(IpAddr::V4(ip), u16::from_be(address.sin_port)))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let address = unsafe { &*(&raw const *storage).cast::<libc::sockaddr_in6>() };
            let ip = Ipv6Addr::from(address.sin6_addr.s6_addr);
            let port = u16::from_be(address.sin6_port);
            Some(SocketAddrV6::new(ip, port, 0, address.sin6_scope_id).into())
        }
        _ => None,
    }
}

/// The socket address of an address.
pub(super) fn storage_of(address: SocketAddr) -> libc::sockaddr_storage {
    // SAFETY: zeroes are a valid value of this plain structure.
    let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    match address {
        SocketAddr::V4(v4) => {
            // SAFETY: the storage has room for, and the alignment of, every kind of address.
            let place = unsafe { &mut *(&raw mut storage).cast::<libc::sockaddr_in>() };
            place.sin_family = libc::sa_family_t::try_from(libc::AF_INET).expect("a small number");
            place.sin_port = v4.port().to_be();
            place.sin_addr.s_addr = u32::from(*v4.ip()).to_be();
        }
        SocketAddr::V6(v6) => {
            // SAFETY: as above.
            let place = unsafe { &mut *(&raw mut storage).cast::<libc::sockaddr_in6>() };
            place.sin6_family = libc::sa_family_t::try_from(libc::AF_INET6).expect("a small number");
            place.sin6_port = v6.port().to_be();
            place.sin6_addr.s6_addr = v6.ip().octets();
            place.sin6_scope_id = v6.scope_id();
        }
    }
    storage
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_way_to_c_and_back() {
        for text in ["192.0.2.7:3260", "[2001:db8::7]:860", "[fe80::7%3]:3260"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(address_of(&storage_of(address)), Some(address));
        }
    }
}
