//! `lunaport`: the appliance's one binary. Parses the command line and hands over.
#![forbid(unsafe_code)]

mod address;
mod address_rule;
mod admin;
mod banner;
mod chap;
mod cli;
mod client;
mod cores;
mod descriptors;
mod error;
mod export;
mod health;
mod interfaces;
#[cfg(feature = "iser")]
mod iser;
#[cfg(not(feature = "iser"))]
#[path = "iser_absent.rs"]
mod iser;
mod logging;
mod managed;
mod notify;
mod plan;
mod portal;
mod portals;
mod quick_start;
mod serve;
mod shutdown;
mod size;
mod usage;
mod watch;

use std::io::Write;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use cli::{Cli, Command, ServeArgs};
use client::Asked;
use error::StartError;
use serve::Saved;

fn main() -> ExitCode {
    let result = Cli::try_parse()
        .map_err(|error| usage::explain(&error))
        .and_then(run);
    result.unwrap_or_else(|error| {
        drop(writeln!(std::io::stderr(), "lunaport: {error}"));
        ExitCode::FAILURE
    })
}

fn run(cli: Cli) -> Result<ExitCode, StartError> {
    match cli.command {
        None => quick_start(),
        Some(Command::Serve(args)) => serve::run(*args, Saved::Required),
        Some(Command::Health(args)) => health::run(&args),
        Some(Command::Config { command, common }) => client::run(&common, Asked::Config(command)),
        Some(Command::Initiator { command, common }) => client::run(&common, Asked::Initiator(command)),
        Some(Command::Job { command, common }) => client::run(&common, Asked::Job(command)),
        Some(Command::LogFilter { filter, common }) => client::run(&common, Asked::LogFilter(filter)),
        Some(Command::Lun { command, common }) => client::run(&common, Asked::Lun(command)),
        Some(Command::Reservation { command, common }) => client::run(&common, Asked::Reservation(command)),
        Some(Command::Session { command, common }) => client::run(&common, Asked::Session(command)),
        Some(Command::Store { command, common }) => client::run(&common, Asked::Store(command)),
        Some(Command::Target { command, common }) => client::run(&common, Asked::Target(command)),
        Some(Command::Top { args, common }) => client::run(&common, Asked::Top(args)),
        Some(Command::User { command, common }) => client::run(&common, Asked::User(command)),
        Some(Command::Status { common }) => client::run(&common, Asked::Status),
        Some(Command::Completions { shell }) => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "lunaport", &mut script);
            // Nobody may be reading to the end.
            drop(std::io::stdout().write_all(&script));
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn quick_start() -> Result<ExitCode, StartError> {
    let args = ServeArgs::from_environment().map_err(|error| usage::explain(&error))?;
    serve::run(args, Saved::QuickStart)
}
