//! The two libraries: found at run time, kept for the life of the process, called through a table of their functions.
//!
//! What rdma-core has as inline functions comes from rdma-sys and needs no symbol; its other functions must not be called
//! from there, or the binary would not start on hosts without the libraries.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::io;
use std::sync::OnceLock;

use rdma_sys::{
    ibv_comp_channel, ibv_context, ibv_cq, ibv_device, ibv_device_attr, ibv_mr, ibv_pd, ibv_qp_init_attr,
    rdma_cm_event, rdma_cm_id, rdma_conn_param, rdma_event_channel,
};

use crate::unavailable::Unavailable;

macro_rules! library {
    ($($(#[$doc:meta])* $from:ident $name:ident($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// Functions of the libraries, by their names.
        #[derive(Debug)]
        pub struct Library {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Library {
            fn resolve(libraries: &Libraries) -> Result<Self, libloading::Error> {
                Ok(Self {
                    $(
                        // SAFETY: the type is that of the function in the headers of rdma-core, which has not changed
                        // it since its first release (symbols are versioned); the library stays loaded for ever.
                        $name: unsafe { *libraries.$from.get(concat!(stringify!($name), "\0").as_bytes())? },
                    )*
                })
            }
        }
    };
}

library! {
    ibverbs ibv_ack_cq_events(*mut ibv_cq, c_uint);
    ibverbs ibv_alloc_pd(*mut ibv_context) -> *mut ibv_pd;
    ibverbs ibv_create_comp_channel(*mut ibv_context) -> *mut ibv_comp_channel;
    ibverbs ibv_create_cq(*mut ibv_context, c_int, *mut c_void, *mut ibv_comp_channel, c_int) -> *mut ibv_cq;
    ibverbs ibv_dealloc_pd(*mut ibv_pd) -> c_int;
    ibverbs ibv_dereg_mr(*mut ibv_mr) -> c_int;
    ibverbs ibv_destroy_comp_channel(*mut ibv_comp_channel) -> c_int;
    ibverbs ibv_destroy_cq(*mut ibv_cq) -> c_int;
    ibverbs ibv_free_device_list(*mut *mut ibv_device);
    ibverbs ibv_get_cq_event(*mut ibv_comp_channel, *mut *mut ibv_cq, *mut *mut c_void) -> c_int;
    ibverbs ibv_get_device_list(*mut c_int) -> *mut *mut ibv_device;
    ibverbs ibv_query_device(*mut ibv_context, *mut ibv_device_attr) -> c_int;
    ibverbs ibv_reg_mr(*mut ibv_pd, *mut c_void, usize, c_int) -> *mut ibv_mr;
    ibverbs ibv_wc_status_str(c_uint) -> *const c_char;
    rdmacm rdma_accept(*mut rdma_cm_id, *mut rdma_conn_param) -> c_int;
    rdmacm rdma_ack_cm_event(*mut rdma_cm_event) -> c_int;
    rdmacm rdma_bind_addr(*mut rdma_cm_id, *mut libc::sockaddr) -> c_int;
    rdmacm rdma_create_event_channel() -> *mut rdma_event_channel;
    rdmacm rdma_create_id(*mut rdma_event_channel, *mut *mut rdma_cm_id, *mut c_void, c_uint) -> c_int;
    rdmacm rdma_create_qp(*mut rdma_cm_id, *mut ibv_pd, *mut ibv_qp_init_attr) -> c_int;
    rdmacm rdma_destroy_event_channel(*mut rdma_event_channel);
    rdmacm rdma_destroy_id(*mut rdma_cm_id) -> c_int;
    rdmacm rdma_destroy_qp(*mut rdma_cm_id);
    rdmacm rdma_disconnect(*mut rdma_cm_id) -> c_int;
    rdmacm rdma_event_str(c_uint) -> *const c_char;
    rdmacm rdma_get_cm_event(*mut rdma_event_channel, *mut *mut rdma_cm_event) -> c_int;
    rdmacm rdma_listen(*mut rdma_cm_id, c_int) -> c_int;
    rdmacm rdma_migrate_id(*mut rdma_cm_id, *mut rdma_event_channel) -> c_int;
    rdmacm rdma_reject(*mut rdma_cm_id, *const c_void, u8) -> c_int;
}

/// Both, loaded.
struct Libraries {
    ibverbs: libloading::Library,
    rdmacm: libloading::Library,
}

impl Library {
    /// The libraries, loaded on the first call. What that call found holds for the life of the process.
    pub fn load() -> Result<&'static Self, Unavailable> {
        static LOADED: OnceLock<Result<Library, Unavailable>> = OnceLock::new();
        LOADED.get_or_init(Self::open).as_ref().map_err(Clone::clone)
    }

    fn open() -> Result<Self, Unavailable> {
        let open = |name: &str| {
            // SAFETY: rdma-core's libraries begin with nothing that depends on anything of ours.
            unsafe { libloading::Library::new(name) }
        };
        let missing = |error: libloading::Error| Unavailable::NoLibrary(error.to_string());
        let libraries = Libraries {
            ibverbs: open("libibverbs.so.1").map_err(missing)?,
            rdmacm: open("librdmacm.so.1").map_err(missing)?,
        };
        let library = Self::resolve(&libraries).map_err(missing)?;
        // Their functions are called as long as the process lives.
        std::mem::forget(libraries);
        Ok(library)
    }

    /// Whether there is a device now.
    #[must_use]
    pub fn has_device(&self) -> bool {
        let mut count = 0;
        // SAFETY: a null list is not freed; the count is written in either case.
        unsafe {
            let list = (self.ibv_get_device_list)(&raw mut count);
            if list.is_null() {
                return false;
            }
            (self.ibv_free_device_list)(list);
        }
        count > 0
    }

    /// The name of a completion's status.
    pub(super) fn status_name(&self, status: c_uint) -> String {
        // SAFETY: the function returns a constant string for any number.
        unsafe { CStr::from_ptr((self.ibv_wc_status_str)(status)) }
            .to_string_lossy()
            .into_owned()
    }

    /// The name of a connection manager's event.
    pub(super) fn event_name(&self, event: c_uint) -> String {
        // SAFETY: the function returns a constant string for any number.
        unsafe { CStr::from_ptr((self.rdma_event_str)(event)) }
            .to_string_lossy()
            .into_owned()
    }
}

/// The result of a function that returns -1 and sets errno.
pub(super) fn check(result: c_int) -> io::Result<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The result of a function that returns the error.
pub(super) fn check_code(result: c_int) -> io::Result<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(result.abs()))
    }
}
