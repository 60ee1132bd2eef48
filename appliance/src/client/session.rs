//! `lunaport session`: listed, closed, listened in on.

use clap::Subcommand;

use super::Api;
use super::trace::{self, TraceCommand};
use crate::error::StartError;

#[derive(Debug, Subcommand)]
pub(crate) enum SessionCommand {
    /// List sessions.
    List,
    /// Close one.
    Close { tsih: u16 },
    /// See what initiators and the target say to each other.
    #[command(subcommand)]
    Trace(TraceCommand),
}

pub(super) fn run(api: &Api, command: SessionCommand) -> Result<(), StartError> {
    match command {
        SessionCommand::List => api.show(&api.get("/sessions")?["items"]),
        SessionCommand::Close { tsih } => api.delete(&format!("/sessions/{tsih}")),
        SessionCommand::Trace(command) => trace::run(api, command),
    }
}
