//! A library for tests, whose device does nothing by itself: it notes what is asked of it, fails where the test says so, and
//! completes what the test completes. Each thread has a device of its own. Its objects are never freed, so that one that is
//! used too late does no harm but is seen in the order of calls.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::ptr::null_mut;
use std::sync::Arc;

use rdma_sys::{
    ibv_comp_channel, ibv_context, ibv_cq, ibv_device, ibv_device_attr, ibv_mr, ibv_pd, ibv_qp,
    ibv_qp_init_attr, ibv_recv_wr, ibv_send_wr, ibv_transport_type, ibv_wc, rdma_cm_event,
    rdma_cm_event_type, rdma_cm_id, rdma_conn_param, rdma_event_channel,
};

use super::cm::{CmEvent, ConnectRequest, EventChannel, storage_of};
use super::device::Devices;
use super::ffi::Library;
use crate::fabric::Region;

/// The device of this thread.
#[derive(Default)]
pub(super) struct Fake {
    /// Names of the functions that were called and free something.
    pub(super) freed: Vec<&'static str>,
    /// Access rights of everything that was registered.
    pub(super) registered: Vec<c_int>,
    /// Queue pairs cannot be made.
    pub(super) makes_no_queue_pair: bool,
    /// Work is not taken.
    pub(super) refuses: Option<Refusal>,
    /// What completes next.
    pub(super) completions: VecDeque<ibv_wc>,
    /// How often the completion queue was armed.
    pub(super) arms: usize,
    /// Somebody wants to connect; known before the listener is made.
    pub(super) is_called: bool,
}

/// How work is not taken.
#[derive(Clone, Copy)]
pub(super) enum Refusal {
    /// From this piece of the chain on.
    From(usize),
    /// Taken, but for telling the device; no piece is named.
    Doorbell,
}

thread_local! {
    static FAKE: RefCell<Fake> = RefCell::default();
}

/// Looks at the device of this thread, or changes it.
pub(super) fn fake<T>(look: impl FnOnce(&mut Fake) -> T) -> T {
    FAKE.with_borrow_mut(look)
}

/// Devices over this library, each of which is going to register `region`.
pub(super) fn devices(region: Region) -> Arc<Devices> {
    Devices::new(Box::leak(Box::new(library())), vec![region]).expect("this thread has a runtime")
}

/// A request to connect over the device of this thread, which registers `region`. Its listener is always there.
pub(super) fn request(region: Region, transport: ibv_transport_type::Type) -> ConnectRequest {
    let devices = devices(region);
    let channel = Arc::new(EventChannel::new(devices.library()).expect("this thread has a runtime"));
    std::mem::forget(Arc::clone(&channel));
    let event = CmEvent {
        kind: rdma_cm_event_type::RDMA_CM_EVENT_CONNECT_REQUEST,
        status: 0,
        id: caller(transport),
        private_data: Vec::new(),
        reads_max: 4,
    };
    // SAFETY: the identifier was made for this request.
    let request = unsafe { ConnectRequest::new(devices, channel, event) };
    request.expect("its addresses are of the Internet")
}

/// The identifier of somebody who wants to connect through a device.
fn caller(transport: ibv_transport_type::Type) -> *mut rdma_cm_id {
    let (device, context, id) = (
        object::<ibv_device>(),
        object::<ibv_context>(),
        object::<rdma_cm_id>(),
    );
    // SAFETY: objects just made, which nobody else has.
    unsafe {
        (*device).transport_type = transport;
        (*context).device = device;
        (*context).ops.poll_cq = Some(poll_cq);
        (*context).ops.req_notify_cq = Some(req_notify_cq);
        (*context).ops.post_send = Some(post_send);
        (*context).ops.post_recv = Some(post_recv);
        (*id).verbs = context;
        let address = storage_of(SocketAddr::from(([192, 0, 2, 1], 3260)));
        (*id).route.addr.src_addr_union.src_storage = address;
        (*id).route.addr.dst_addr_union.dst_storage = address;
    }
    id
}

fn library() -> Library {
    Library {
        ibv_ack_cq_events,
        ibv_alloc_pd,
        ibv_create_comp_channel,
        ibv_create_cq,
        ibv_dealloc_pd,
        ibv_dereg_mr,
        ibv_destroy_comp_channel,
        ibv_destroy_cq,
        ibv_free_device_list,
        ibv_get_cq_event,
        ibv_get_device_list,
        ibv_query_device,
        ibv_reg_mr,
        ibv_wc_status_str: text,
        rdma_accept,
        rdma_ack_cm_event,
        rdma_bind_addr,
        rdma_create_event_channel,
        rdma_create_id,
        rdma_create_qp,
        rdma_destroy_event_channel,
        rdma_destroy_id,
        rdma_destroy_qp,
        rdma_disconnect,
        rdma_event_str: text,
        rdma_get_cm_event,
        rdma_listen,
        rdma_migrate_id,
        rdma_reject,
    }
}

/// An object of a library, all zeroes.
fn object<T>() -> *mut T {
    Box::into_raw(Box::new(MaybeUninit::<T>::zeroed())).cast()
}

fn freed(name: &'static str) {
    fake(|fake| fake.freed.push(name));
}

fn fails_with(errno: c_int) -> c_int {
    // SAFETY: the place of this thread's error number.
    unsafe { *libc::__errno_location() = errno };
    -1
}

/// A descriptor that says once that something came, or never.
fn descriptor(says_so: bool) -> c_int {
    // SAFETY: no memory is involved.
    unsafe { libc::eventfd(says_so.into(), 0) }
}

unsafe extern "C" fn ibv_ack_cq_events(_: *mut ibv_cq, _: c_uint) {}

unsafe extern "C" fn ibv_alloc_pd(_: *mut ibv_context) -> *mut ibv_pd {
    object()
}

unsafe extern "C" fn ibv_create_comp_channel(_: *mut ibv_context) -> *mut ibv_comp_channel {
    let channel = object::<ibv_comp_channel>();
    // SAFETY: just made.
    unsafe { (*channel).fd = descriptor(false) };
    channel
}

unsafe extern "C" fn ibv_create_cq(
    context: *mut ibv_context,
    _: c_int,
    _: *mut c_void,
    _: *mut ibv_comp_channel,
    _: c_int,
) -> *mut ibv_cq {
    let cq = object::<ibv_cq>();
    // SAFETY: just made.
    unsafe { (*cq).context = context };
    cq
}

unsafe extern "C" fn ibv_dealloc_pd(_: *mut ibv_pd) -> c_int {
    freed("domain");
    0
}

unsafe extern "C" fn ibv_dereg_mr(_: *mut ibv_mr) -> c_int {
    freed("registration");
    0
}

unsafe extern "C" fn ibv_destroy_comp_channel(_: *mut ibv_comp_channel) -> c_int {
    freed("completion channel");
    0
}

unsafe extern "C" fn ibv_destroy_cq(_: *mut ibv_cq) -> c_int {
    freed("completion queue");
    0
}

unsafe extern "C" fn ibv_free_device_list(_: *mut *mut ibv_device) {}

unsafe extern "C" fn ibv_get_cq_event(
    _: *mut ibv_comp_channel,
    _: *mut *mut ibv_cq,
    _: *mut *mut c_void,
) -> c_int {
    fails_with(libc::EAGAIN)
}

unsafe extern "C" fn ibv_get_device_list(_: *mut c_int) -> *mut *mut ibv_device {
    null_mut()
}

unsafe extern "C" fn ibv_query_device(_: *mut ibv_context, attributes: *mut ibv_device_attr) -> c_int {
    // SAFETY: the caller's place for the result.
    let attributes = unsafe { &mut *attributes };
    attributes.max_qp_wr = 64;
    attributes.max_cqe = 128;
    attributes.max_qp_init_rd_atom = 4;
    0
}

unsafe extern "C" fn ibv_reg_mr(_: *mut ibv_pd, _: *mut c_void, _: usize, access: c_int) -> *mut ibv_mr {
    fake(|fake| fake.registered.push(access));
    object()
}

unsafe extern "C" fn text(_: c_uint) -> *const c_char {
    c"a name".as_ptr()
}

unsafe extern "C" fn rdma_accept(_: *mut rdma_cm_id, _: *mut rdma_conn_param) -> c_int {
    0
}

unsafe extern "C" fn rdma_ack_cm_event(_: *mut rdma_cm_event) -> c_int {
    0
}

unsafe extern "C" fn rdma_bind_addr(_: *mut rdma_cm_id, _: *mut libc::sockaddr) -> c_int {
    0
}

unsafe extern "C" fn rdma_create_event_channel() -> *mut rdma_event_channel {
    let channel = object::<rdma_event_channel>();
    // SAFETY: just made.
    unsafe { (*channel).fd = descriptor(fake(|fake| fake.is_called)) };
    channel
}

unsafe extern "C" fn rdma_create_id(
    _: *mut rdma_event_channel,
    id: *mut *mut rdma_cm_id,
    _: *mut c_void,
    _: c_uint,
) -> c_int {
    // SAFETY: the caller's place for the result.
    unsafe { *id = object() };
    0
}

unsafe extern "C" fn rdma_create_qp(id: *mut rdma_cm_id, _: *mut ibv_pd, _: *mut ibv_qp_init_attr) -> c_int {
    if fake(|fake| fake.makes_no_queue_pair) {
        return fails_with(libc::ENOMEM);
    }
    let qp = object::<ibv_qp>();
    // SAFETY: the identifier is the caller's, the queue pair was just made.
    unsafe {
        (*qp).context = (*id).verbs;
        (*id).qp = qp;
    }
    0
}

unsafe extern "C" fn rdma_destroy_event_channel(_: *mut rdma_event_channel) {
    freed("channel");
}

unsafe extern "C" fn rdma_destroy_id(_: *mut rdma_cm_id) -> c_int {
    freed("identifier");
    0
}

unsafe extern "C" fn rdma_destroy_qp(_: *mut rdma_cm_id) {
    freed("queue pair");
}

unsafe extern "C" fn rdma_disconnect(_: *mut rdma_cm_id) -> c_int {
    0
}

unsafe extern "C" fn rdma_get_cm_event(_: *mut rdma_event_channel, event: *mut *mut rdma_cm_event) -> c_int {
    if !fake(|fake| std::mem::take(&mut fake.is_called)) {
        return fails_with(libc::EAGAIN);
    }
    let call = object::<rdma_cm_event>();
    // SAFETY: the event was just made; the caller's place for the result.
    unsafe {
        (*call).event = rdma_cm_event_type::RDMA_CM_EVENT_CONNECT_REQUEST;
        (*call).id = caller(ibv_transport_type::IBV_TRANSPORT_IB);
        *event = call;
    }
    0
}

unsafe extern "C" fn rdma_listen(_: *mut rdma_cm_id, _: c_int) -> c_int {
    0
}

unsafe extern "C" fn rdma_migrate_id(_: *mut rdma_cm_id, _: *mut rdma_event_channel) -> c_int {
    0
}

unsafe extern "C" fn rdma_reject(_: *mut rdma_cm_id, _: *const c_void, _: u8) -> c_int {
    0
}

unsafe extern "C" fn poll_cq(_: *mut ibv_cq, room: c_int, place: *mut ibv_wc) -> c_int {
    let next = fake(|fake| fake.completions.pop_front());
    match next {
        Some(completion) if room > 0 => {
            // SAFETY: the caller has room for that many.
            unsafe { place.write(completion) };
            1
        }
        _ => 0,
    }
}

unsafe extern "C" fn req_notify_cq(_: *mut ibv_cq, _: c_int) -> c_int {
    fake(|fake| fake.arms += 1);
    0
}

unsafe extern "C" fn post_send(
    _: *mut ibv_qp,
    first: *mut ibv_send_wr,
    refused: *mut *mut ibv_send_wr,
) -> c_int {
    match fake(|fake| fake.refuses) {
        None => return 0,
        Some(Refusal::Doorbell) => {}
        Some(Refusal::From(place)) => {
            let mut request = first;
            // SAFETY: a chain that is longer, and the caller's place for the result.
            unsafe {
                (0..place).for_each(|_| request = (*request).next);
                *refused = request;
            }
        }
    }
    libc::ENOMEM
}

unsafe extern "C" fn post_recv(_: *mut ibv_qp, _: *mut ibv_recv_wr, _: *mut *mut ibv_recv_wr) -> c_int {
    0
}
