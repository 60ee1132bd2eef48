//! Conversations with the whole target over a real socket, one topic a file.

mod digests;
mod discovery;
mod login;
mod read_write;
mod residuals;
mod sessions;
mod task_management;
