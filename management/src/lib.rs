//! Management: what is configured, what is served, and who may change it.
//!
//! The model is plain values; the state keeps it durably; `Control` changes both and makes the node follow; `Gate` finds
//! out who asks. Knows no HTTP, and SCSI only through the target core.
#![forbid(unsafe_code)]

pub mod access;
pub mod control;
pub mod diff;
pub mod document;
pub mod events;
pub mod exposition;
pub mod identity;
pub mod live;
pub mod model;
pub mod rates;
pub mod state;
pub mod trace;
