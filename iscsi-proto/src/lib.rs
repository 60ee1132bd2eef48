//! The iSCSI wire format of RFC 7143 (with RFC 7144): PDUs, text keys, names, digests.
//!
//! Invariants: no I/O, no state, no other crate of this workspace. Section numbers are RFC 7143's unless they say
//! otherwise.
#![forbid(unsafe_code)]

mod ahs;
pub mod digest;
mod error;
mod frame;
mod ids;
pub mod keys;
mod lun;
mod name;
pub mod pdu;
pub mod text;

pub use ahs::Ahs;
pub use digest::{Crc32c, crc32c};
pub use error::DecodeError;
pub use frame::Frame;
pub use ids::{Cid, Isid, Itt, Sn, Tpgt, Tsih, Ttt};
pub use lun::Lun;
pub use name::{IscsiName, NameError};

/// Length of a basic header segment, bytes.
pub const BHS_LEN: usize = 48;
