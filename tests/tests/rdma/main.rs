//! Sessions over RDMA, on a link in memory.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod host;
mod hostile;
mod metrics;
