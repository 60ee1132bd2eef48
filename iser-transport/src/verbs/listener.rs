//! Listening on one address, until the device or the address goes away.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use rdma_sys::rdma_cm_event_type;
use tracing::{debug, warn};

use super::cm::{CmId, ConnectRequest, EventChannel};
use super::device::Devices;
use super::ffi::check;

/// A listening end.
#[derive(Debug)]
pub struct Listener {
    /// Before its channel.
    id: CmId,
    /// Requests that nobody has answered yet have it too.
    channel: Arc<EventChannel>,
    devices: Arc<Devices>,
}

/// An address that cannot be listened on now: names the cause, and the fix where there is one.
#[derive(Debug, thiserror::Error)]
#[error("{address}: {}", explain(.source))]
pub struct ListenError {
    /// The address asked for.
    pub address: SocketAddr,
    /// What the system said.
    #[source]
    pub source: io::Error,
}

/// Why a listener hears nothing any more. Its address may be listened on again when the cause is gone.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ListenerLost {
    /// The device was removed.
    #[error("the RDMA device was removed")]
    DeviceRemoved,
    /// The address moved to another device, as in a failover of a bond.
    #[error("the address moved to another device")]
    AddressChanged,
    /// The connection manager failed.
    #[error("{0}")]
    Failed(String),
}

impl Listener {
    /// Listens. An address of a device registers that device's memory now; with an unspecified one, each device
    /// registers when somebody first connects through it.
    pub fn bind(devices: &Arc<Devices>, address: SocketAddr) -> Result<Self, ListenError> {
        Self::try_bind(devices, address).map_err(|source| ListenError { address, source })
    }

    fn try_bind(devices: &Arc<Devices>, address: SocketAddr) -> io::Result<Self> {
        let library = devices.library();
        let channel = EventChannel::new(library)?;
        let id = CmId::bound(library, channel.channel(), address)?;
        // SAFETY: the identifier is ours; null while the address belongs to no one device.
        let context = unsafe { (*id.raw()).verbs };
        if !context.is_null() {
            devices.device(context, address)?;
        }
        // SAFETY: as above.
        check(unsafe { (library.rdma_listen)(id.raw(), BACKLOG) })?;
        Ok(Self {
            id,
            channel: Arc::new(channel),
            devices: Arc::clone(devices),
        })
    }

    /// The next request to connect. Its device is open: registering the memory for a new one takes its time, and whoever
    /// serves the connection has none. Dropping the future may reject a request that came through a new device, no other.
    pub async fn accept(&mut self) -> Result<ConnectRequest, ListenerLost> {
        loop {
            let event = std::future::poll_fn(|cx| self.channel.poll_event(cx)).await;
            let event = event.map_err(|error| ListenerLost::Failed(error.to_string()))?;
            match event.kind {
                rdma_cm_event_type::RDMA_CM_EVENT_CONNECT_REQUEST => {
                    // SAFETY: the identifier of a request is its receiver's, and was told once.
                    let request = unsafe {
                        ConnectRequest::new(Arc::clone(&self.devices), Arc::clone(&self.channel), event)
                    };
                    let Some(request) = request else { continue };
                    let peer = request.peer();
                    match with_device(request).await {
                        Ok(request) => return Ok(request),
                        Err(error) => {
                            warn!(%peer, "connection refused, the RDMA device cannot be used: {error}");
                        }
                    }
                }
                kind if event.id != self.id.raw() => {
                    // Of a request that was not taken over yet: whoever does finds out.
                    debug!(event = self.devices.library().event_name(kind), "request");
                }
                rdma_cm_event_type::RDMA_CM_EVENT_DEVICE_REMOVAL => {
                    self.forget_device();
                    return Err(ListenerLost::DeviceRemoved);
                }
                rdma_cm_event_type::RDMA_CM_EVENT_ADDR_CHANGE => return Err(ListenerLost::AddressChanged),
                kind => debug!(
                    event = self.devices.library().event_name(kind),
                    status = event.status,
                    "listener"
                ),
            }
        }
    }

    fn forget_device(&self) {
        // SAFETY: the identifier is ours.
        let context = unsafe { (*self.id.raw()).verbs };
        if !context.is_null() {
            self.devices.forget(context);
        }
    }
}

async fn with_device(request: ConnectRequest) -> io::Result<ConnectRequest> {
    if request.has_device() {
        return Ok(request);
    }
    let opened = tokio::task::spawn_blocking(move || request.device().map(|_| request));
    opened.await.map_err(io::Error::other)?
}

fn explain(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EADDRINUSE) => {
            "the port is taken; iWARP devices share the ports of TCP, so give RDMA a port or an address of its own".into()
        }
        Some(libc::EADDRNOTAVAIL | libc::ENODEV) => {
            "no RDMA device has this address (`rdma link` lists them); waiting for one".into()
        }
        Some(libc::ENOMEM) => {
            "not enough memory may be locked: raise RLIMIT_MEMLOCK (`ulimit -l`), or make the buffer pool smaller".into()
        }
        _ => error.to_string(),
    }
}

/// Initiators that reconnect all at once after a restart find room.
const BACKLOG: i32 = 256;
