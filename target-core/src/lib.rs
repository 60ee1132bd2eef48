//! The iSCSI target without sockets: login, sessions, task management and the SCSI engine.
//!
//! Invariants: opens no socket and no file, reads no clock outside `serve`, draws no randomness that it was not given.
#![forbid(unsafe_code)]

pub mod control;
pub mod datamover;
pub mod iscsi;
pub mod nexus;
pub mod scsi;
pub mod serve;
pub mod transfer;
