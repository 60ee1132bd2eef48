//! Devices, and the memory they may touch: a few large regions that are registered once, when a device is first used.

use std::collections::HashMap;
use std::convert::Infallible;
use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rdma_sys::{
    ibv_access_flags, ibv_context, ibv_device_attr, ibv_device_cap_flags, ibv_mr, ibv_pd, ibv_transport_type,
    rdma_cm_event_type,
};
use tracing::{info, warn};

use super::cm::{CmId, EventChannel};
use super::ffi::{Library, check_code};
use crate::fabric::Region;
use crate::unavailable::Unavailable;

/// The devices in use, and what each has to register.
#[derive(Debug)]
pub struct Devices {
    library: &'static Library,
    regions: Vec<Region>,
    /// By the address of the context.
    open: Mutex<HashMap<usize, Arc<Device>>>,
    /// Held while a device is being opened, which takes as long as its memory is large.
    opening: Mutex<()>,
    /// Of the anchors of all devices.
    channel: Arc<EventChannel>,
}

/// A device with a protection domain and registered memory. Lives as long as somebody uses it.
#[derive(Debug)]
pub struct Device {
    library: &'static Library,
    context: *mut ibv_context,
    pd: *mut ibv_pd,
    registered: Vec<Registered>,
    limits: DeviceLimits,
    /// It is gone from the system.
    removed: AtomicBool,
    /// An identifier of its own: the connection manager may close the context of a removed device when it has no identifier
    /// on it, and we have things in that context. It also hears of the removal, though nobody be connected. Dropped behind
    /// those things, before its channel.
    anchor: CmId,
    _channel: Arc<EventChannel>,
    /// Kept mapped as long as it is registered.
    _regions: Vec<Region>,
}

/// What a device can do.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeviceLimits {
    /// Work requests of one queue.
    pub(super) queue_depth: usize,
    /// Completions of one completion queue.
    pub(super) completions: usize,
    /// RDMA READs that a queue pair has under way at once.
    pub(super) reads_out: u8,
    /// SEND with invalidate.
    pub(super) can_invalidate: bool,
    /// What a read fetches is placed as if the peer had written it, and the peer is told where: it can write there.
    pub(super) reads_let_write: bool,
    /// Memory of work that has no completion of its own may still be used when work behind it is over.
    pub(super) signals_each: bool,
}

/// Who may write into registered memory.
#[derive(Clone, Copy, Debug)]
pub(super) enum Access {
    /// The device, for us.
    Ours,
    /// The peer as well.
    Peers,
}

#[derive(Debug)]
struct Registered {
    range: Range<usize>,
    mr: *mut ibv_mr,
    lkey: u32,
}

// SAFETY: contexts, domains and regions of libibverbs may be used from any thread.
unsafe impl Send for Device {}
// SAFETY: as above; shared references only read.
unsafe impl Sync for Device {}

impl Devices {
    /// No device yet. Every one is going to register `regions`. To be called in the runtime that is going to
    /// [watch](Self::watch).
    pub fn new(library: &'static Library, regions: Vec<Region>) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            library,
            regions,
            open: Mutex::default(),
            opening: Mutex::default(),
            channel: Arc::new(EventChannel::new(library)?),
        }))
    }

    /// Lets go of devices that are removed while nobody is connected through them: their removal waits for that. Returns
    /// only when the connection manager fails.
    pub async fn watch(&self) -> io::Result<Infallible> {
        loop {
            let event = std::future::poll_fn(|cx| self.channel.poll_event(cx)).await?;
            if event.kind != rdma_cm_event_type::RDMA_CM_EVENT_DEVICE_REMOVAL {
                continue;
            }
            let open = self.lock();
            let removed = open.values().find(|device| device.anchor.raw() == event.id);
            let context = removed.map(|device| (device.name(), device.context));
            drop(open);
            if let Some((device, context)) = context {
                info!(device, "RDMA device removed");
                self.forget(context);
            }
        }
    }

    /// Why this host cannot serve, if that is known before an address is bound.
    pub fn check(&self) -> Result<(), Unavailable> {
        let needed = self
            .regions
            .iter()
            .map(|region| region.range().len() as u64)
            .sum();
        if let Some(allowed) = memory_limit()
            && allowed < needed
        {
            return Err(Unavailable::MemoryLimit { needed, allowed });
        }
        if self.library.has_device() {
            Ok(())
        } else {
            Err(Unavailable::NoDevice)
        }
    }

    pub(super) fn library(&self) -> &'static Library {
        self.library
    }

    /// The device of a context, which has this address; registers memory when it is new.
    pub(super) fn device(&self, context: *mut ibv_context, address: SocketAddr) -> io::Result<Arc<Device>> {
        let find = || self.lock().get(&context.addr()).cloned();
        if let Some(device) = find() {
            return Ok(device);
        }
        let _opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(device) = find() {
            return Ok(device);
        }
        let device = Arc::new(Device::open(self, context, address)?);
        self.lock().insert(context.addr(), Arc::clone(&device));
        Ok(device)
    }

    pub(super) fn is_open(&self, context: *mut ibv_context) -> bool {
        self.lock().contains_key(&context.addr())
    }

    /// The device was removed: its memory is given up with the last connection.
    pub(super) fn forget(&self, context: *mut ibv_context) {
        let device = self.lock().remove(&context.addr());
        if let Some(device) = device {
            device.removed.store(true, Ordering::Relaxed);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<usize, Arc<Device>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Device {
    fn open(devices: &Devices, context: *mut ibv_context, address: SocketAddr) -> io::Result<Self> {
        let (library, regions) = (devices.library, &devices.regions);
        let mut any_port = address;
        any_port.set_port(0);
        let anchor = CmId::bound(library, devices.channel.channel(), any_port)?;
        // SAFETY: zeroes are a valid value of this plain structure.
        let mut attributes: ibv_device_attr = unsafe { std::mem::zeroed() };
        // SAFETY: the context is the connection manager's, which does not close it while an identifier uses it.
        check_code(unsafe { (library.ibv_query_device)(context, &raw mut attributes) })?;
        // SAFETY: as above.
        let pd = unsafe { (library.ibv_alloc_pd)(context) };
        if pd.is_null() {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a context names its device.
        let transport = unsafe { (*(*context).device).transport_type };
        let iwarp = transport == ibv_transport_type::IBV_TRANSPORT_IWARP;
        let mut device = Self {
            library,
            context,
            pd,
            registered: Vec::new(),
            limits: limits(&attributes, iwarp),
            removed: AtomicBool::new(false),
            anchor,
            _channel: Arc::clone(&devices.channel),
            _regions: regions.clone(),
        };
        for region in regions {
            let range = region.range();
            let mr = device.register(range.start, range.len(), Access::Ours)?;
            // SAFETY: registration succeeded.
            let lkey = unsafe { (*mr).lkey };
            device.registered.push(Registered { range, mr, lkey });
        }
        info!(
            device = device.name(),
            regions = regions.len(),
            "RDMA device in use, memory registered"
        );
        Ok(device)
    }

    /// As the system calls it.
    #[must_use]
    pub fn name(&self) -> String {
        // SAFETY: a context names its device, whose name is an array that ends with zero.
        let name = unsafe { std::ffi::CStr::from_ptr((&raw const (*(*self.context).device).name).cast()) };
        name.to_string_lossy().into_owned()
    }

    pub(super) fn library(&self) -> &'static Library {
        self.library
    }

    pub(super) fn context(&self) -> *mut ibv_context {
        self.context
    }

    pub(super) fn pd(&self) -> *mut ibv_pd {
        self.pd
    }

    pub(super) fn limits(&self) -> DeviceLimits {
        self.limits
    }

    /// The key of memory in one of the regions.
    pub(super) fn key(&self, start: usize, len: usize) -> Option<u32> {
        let inside =
            |registered: &&Registered| registered.range.start <= start && start + len <= registered.range.end;
        self.registered
            .iter()
            .find(inside)
            .map(|registered| registered.lkey)
    }

    /// Registers memory: a region, or what one work request needs a key of its own for. The caller keeps it alive until
    /// [`Self::deregister`].
    pub(super) fn register(&self, start: usize, len: usize, access: Access) -> io::Result<*mut ibv_mr> {
        let start = std::ptr::with_exposed_provenance_mut::<c_void>(start);
        let ours = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0;
        let access = match access {
            Access::Ours => ours,
            Access::Peers => ours | ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0,
        };
        let access = i32::try_from(access).expect("low bits");
        // SAFETY: registering touches no byte; the memory is mapped, and stays so while it is registered (regions are
        // held by this device, other memory by the queue pair).
        let mr = unsafe { (self.library.ibv_reg_mr)(self.pd, start, len, access) };
        if mr.is_null() {
            return Err(io::Error::last_os_error());
        }
        Ok(mr)
    }

    /// Gives a removed device back to the kernel. Its software devices are not gone before the last process has closed
    /// them, and the command that removes one waits for that; but the connection manager keeps its contexts open until
    /// it finds another device. So its two descriptors come to mean `/dev/null`, which it may close whenever it likes.
    fn let_go(&self) -> io::Result<()> {
        let null = File::open("/dev/null")?;
        // SAFETY: the context is open as long as the anchor is there.
        let descriptors = unsafe { [(*self.context).cmd_fd, (*self.context).async_fd] };
        for descriptor in descriptors {
            // SAFETY: both are open, and whoever owns them finds them open afterwards; nothing of ours uses the context any
            // more, and what the library still asks of it fails, as it does with a device that is gone.
            if unsafe { libc::dup2(null.as_raw_fd(), descriptor) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    }

    pub(super) fn deregister(&self, mr: *mut ibv_mr) {
        // SAFETY: it came from `register`, and no work request uses it any more.
        unsafe { (self.library.ibv_dereg_mr)(mr) };
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        for registered in &self.registered {
            self.deregister(registered.mr);
        }
        // SAFETY: queue pairs hold the device, so none uses the domain any more.
        unsafe { (self.library.ibv_dealloc_pd)(self.pd) };
        if self.removed.load(Ordering::Relaxed)
            && let Err(error) = self.let_go()
        {
            warn!(%error, "a removed RDMA device cannot be let go of");
        }
    }
}

fn limits(attributes: &ibv_device_attr, iwarp: bool) -> DeviceLimits {
    let positive = |value: i32| usize::try_from(value).unwrap_or(0);
    DeviceLimits {
        queue_depth: positive(attributes.max_qp_wr),
        completions: positive(attributes.max_cqe),
        reads_out: u8::try_from(attributes.max_qp_init_rd_atom.max(0)).unwrap_or(u8::MAX),
        can_invalidate: attributes.device_cap_flags & ibv_device_cap_flags::IBV_DEVICE_MEM_MGT_EXTENSIONS.0
            != 0,
        reads_let_write: iwarp,
        // On iWARP work is over when TCP has it, and soft-iWARP gives TCP the pages themselves, unless work is signalled:
        // what is written into them before TCP has sent them, or sent them again, goes out in place of what was there.
        signals_each: iwarp,
    }
}

/// Bytes that this process may lock; `None` without a limit.
fn memory_limit() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let capabilities = line
        .and_then(|line| u64::from_str_radix(line.trim(), 16).ok())
        .unwrap_or(0);
    if capabilities >> CAP_IPC_LOCK & 1 == 1 {
        return None;
    }
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: writes the structure that is given.
    let found = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) } == 0;
    (found && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

const CAP_IPC_LOCK: u32 = 14;
