//! Long work on the command line: listed, waited for, ended.

use std::io::{self, IsTerminal, Write};
use std::thread;
use std::time::Duration;

use clap::Subcommand;
use serde_json::Value;

use super::Api;
use crate::error::StartError;

#[derive(Debug, Subcommand)]
pub(crate) enum JobCommand {
    /// List long work and how far it is.
    List,
    /// Wait until a job has ended.
    Wait { id: String },
    /// End a job before it is done.
    Cancel { id: String },
}

pub(super) fn run(api: &Api, command: JobCommand) -> Result<(), StartError> {
    match command {
        JobCommand::List => api.show(&api.get("/jobs")?["items"]),
        JobCommand::Wait { id } => wait(api, api.get(&format!("/jobs/{id}"))?),
        JobCommand::Cancel { id } => api.delete(&format!("/jobs/{id}")),
    }
}

/// Shows how far it is, on a terminal, and how it ended. A job that was not done is an error.
pub(super) fn wait(api: &Api, mut job: Value) -> Result<(), StartError> {
    let id = job["id"].as_str().unwrap_or_default().to_owned();
    let shows = io::stderr().is_terminal();
    while job["state"] == "running" {
        if shows {
            // Nobody may be looking any more.
            drop(write!(io::stderr(), "\r{:3} %", percent(&job)));
        }
        thread::sleep(PAUSE);
        job = api.get(&format!("/jobs/{id}"))?;
    }
    if shows {
        drop(write!(io::stderr(), "\r"));
    }
    if job["state"] == "done" {
        return api.show(&job);
    }
    let problem = job["problem"].as_str().unwrap_or("it was cancelled");
    Err(StartError::option("job", id, problem))
}

fn percent(job: &Value) -> u64 {
    let bytes = |field: &str| job[field].as_u64().unwrap_or(0);
    bytes("done").saturating_mul(100) / bytes("total").max(1)
}

const PAUSE: Duration = Duration::from_millis(200);
