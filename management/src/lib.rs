//! Management: what is configured, what is served, and who may change it.
//!
//! The model is plain values; the state keeps it durably; `Control` changes both and makes the node follow. Knows no
//! HTTP, and SCSI only through the target core.
#![forbid(unsafe_code)]

pub mod identity;
pub mod model;
pub mod state;
