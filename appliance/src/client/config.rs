//! `lunaport config`: the whole configuration, out and in.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Subcommand;

use super::{Api, read};
use crate::error::StartError;

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print the whole configuration.
    Show {
        /// With the secrets.
        #[arg(long)]
        secrets: bool,
    },
    /// Make the configuration what a file says; - is standard input.
    Apply {
        file: PathBuf,
        /// Say what would be done, and do nothing.
        #[arg(long)]
        dry_run: bool,
        /// Take away what the file does not name.
        #[arg(long)]
        prune: bool,
        /// Even when sessions lose something by it.
        #[arg(long)]
        force: bool,
    },
}

pub(super) fn run(api: &Api, command: ConfigCommand) -> Result<(), StartError> {
    match command {
        ConfigCommand::Show { secrets } => {
            let whole = api.get(&format!("/config?secrets={secrets}"))?;
            let text = serde_json::to_string_pretty(&whole).expect("a value is JSON");
            drop(writeln!(io::stdout(), "{text}"));
            Ok(())
        }
        ConfigCommand::Apply {
            file,
            dry_run,
            prune,
            force,
        } => {
            let text = read(&file, "config apply")?;
            let path = format!("/config?dry-run={dry_run}&prune={prune}&force={force}");
            let outcome = api.client.ask("PUT", &path, Some(text))?;
            api.show(&outcome["differences"])
        }
    }
}
