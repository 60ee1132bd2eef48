//! `lunaport reservation`: what initiators have reserved, and taking it away.

use clap::Subcommand;

use super::Api;
use crate::error::StartError;

#[derive(Debug, Subcommand)]
pub(crate) enum ReservationCommand {
    /// List units on which something is reserved.
    List,
    /// Show registrants and holder of one.
    Show { unit: String },
    /// Take all registrations and reservations of one away.
    Clear {
        unit: String,
        /// Even while registrants have sessions.
        #[arg(long)]
        force: bool,
    },
}

pub(super) fn run(api: &Api, command: ReservationCommand) -> Result<(), StartError> {
    match command {
        ReservationCommand::List => api.show(&api.get("/reservations")?["items"]),
        ReservationCommand::Show { unit } => api.show(&api.get(&format!("/reservations/{unit}"))?),
        ReservationCommand::Clear { unit, force } => {
            api.delete(&format!("/reservations/{unit}?force={force}"))
        }
    }
}
