//! Conversations with the whole target over a real socket, one topic a file.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod block_commands;
mod copy;
mod data_cores;
mod digests;
mod discovery;
mod esxi_shaped;
mod hostile;
mod login;
mod metrics;
mod multiple_connections;
mod paths;
mod queries;
mod read_write;
mod reassignment;
mod recovery;
mod reservations;
mod residuals;
mod sessions;
mod sizes;
mod task_management;
mod windows_shaped;
