//! The iSCSI target without sockets: login, sessions, task management and the SCSI engine.
//!
//! Invariants: opens no socket and no file, reads no clock outside `serve` and `trace`, draws no randomness that it was not given.
#![forbid(unsafe_code)]

pub mod control;
pub mod data_out;
pub mod datamover;
pub mod iscsi;
pub mod metrics;
pub mod nexus;
pub mod replay;
pub mod scsi;
pub mod serve;
pub mod trace;
pub mod transfer;
