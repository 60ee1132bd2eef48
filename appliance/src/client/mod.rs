//! The command line as a client of the API: on this host by the socket in the state directory, elsewhere by `LUNAPORT_URL`
//! and `LUNAPORT_TOKEN`. A file for each family of commands. Decides nothing: what the API says is what is shown.

mod config;
mod http;
mod initiator;
mod job;
mod lun;
mod reservation;
mod session;
mod store;
mod table;
mod target;
mod top;
mod trace;
mod user;

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};

use crate::error::StartError;
pub(crate) use config::ConfigCommand;
use http::Client;
pub(crate) use initiator::InitiatorCommand;
pub(crate) use job::JobCommand;
pub(crate) use lun::LunCommand;
pub(crate) use reservation::ReservationCommand;
pub(crate) use session::SessionCommand;
pub(crate) use store::StoreCommand;
pub(crate) use target::TargetCommand;
pub(crate) use top::TopArgs;
pub(crate) use user::UserCommand;

/// What every client command takes.
#[derive(Args, Clone, Debug)]
pub(crate) struct Common {
    /// State directory of the program on this host, whose socket is used unless LUNAPORT_URL is set
    #[arg(long, global = true, value_name = "DIR", env = "LUNAPORT_STATE_DIR")]
    state_dir: Option<PathBuf>,

    /// The program elsewhere, such as https://san.example.org:8443; LUNAPORT_TOKEN holds an API token for it
    #[arg(long, global = true, value_name = "URL", env = "LUNAPORT_URL")]
    url: Option<String>,

    /// Certificate authorities for https, PEM [default: the system's]
    #[arg(long, global = true, value_name = "FILE", env = "LUNAPORT_CA")]
    ca: Option<PathBuf>,

    /// JSON instead of tables
    #[arg(long, global = true)]
    json: bool,
}

/// A client command.
#[derive(Debug)]
pub(crate) enum Asked {
    Config(ConfigCommand),
    Initiator(InitiatorCommand),
    Job(JobCommand),
    LogFilter(Option<String>),
    Lun(LunCommand),
    Reservation(ReservationCommand),
    Session(SessionCommand),
    Status,
    Store(StoreCommand),
    Target(TargetCommand),
    Top(TopArgs),
    User(UserCommand),
}

/// Asks, shows, and says by the exit code whether it was done.
pub(crate) fn run(common: &Common, asked: Asked) -> Result<ExitCode, StartError> {
    let api = Api {
        client: Client::new(common.url.as_deref(), common.state_dir.clone(), common.ca.clone())?,
        json: common.json,
    };
    match asked {
        Asked::Config(command) => config::run(&api, command),
        Asked::Initiator(command) => initiator::run(&api, command),
        Asked::Job(command) => job::run(&api, command),
        Asked::LogFilter(None) => api.show(&api.get("/log-filter")?),
        Asked::LogFilter(Some(filter)) => {
            api.show(&api.send("PUT", "/log-filter", &json!({"filter": filter}))?)
        }
        Asked::Lun(command) => lun::run(&api, command),
        Asked::Reservation(command) => reservation::run(&api, command),
        Asked::Session(command) => session::run(&api, command),
        Asked::Status => api.show(&api.get("/status")?),
        Asked::Store(command) => store::run(&api, command),
        Asked::Target(command) => target::run(&api, command),
        Asked::Top(args) => top::top(&api, args),
        Asked::User(command) => user::run(&api, command),
    }?;
    Ok(ExitCode::SUCCESS)
}

struct Api {
    client: Client,
    json: bool,
}

impl Api {
    fn get(&self, path: &str) -> Result<Value, StartError> {
        self.client.ask("GET", path, None)
    }

    fn send(&self, method: &str, path: &str, body: &Value) -> Result<Value, StartError> {
        self.client.ask(method, path, Some(body.to_string()))
    }

    fn delete(&self, path: &str) -> Result<(), StartError> {
        self.client.ask("DELETE", path, None).map(drop)
    }

    /// Every object of a list, page by page.
    fn all(&self, path: &str) -> Result<Value, StartError> {
        let mut items = Vec::new();
        let mut after = String::new();
        loop {
            let glue = if path.contains('?') { '&' } else { '?' };
            let mut page = self.get(&format!("{path}{glue}limit=1000{after}"))?;
            if let Some(Value::Array(more)) = page.get_mut("items").map(Value::take) {
                items.extend(more);
            }
            match page.get("next").and_then(Value::as_str) {
                Some(next) => after = format!("&after={next}"),
                None => return Ok(Value::Array(items)),
            }
        }
    }

    fn show(&self, value: &Value) -> Result<(), StartError> {
        let text = if self.json {
            serde_json::to_string_pretty(value).expect("a value is JSON")
        } else {
            table::format(value)
        };
        // Nobody may be reading any more.
        drop(writeln!(io::stdout(), "{}", text.trim_end()));
        Ok(())
    }
}

fn read(file: &Path, option: &'static str) -> Result<String, StartError> {
    let read = if file == Path::new("-") {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        fs::read_to_string(file)
    };
    read.map_err(|error| StartError::option(option, file.display().to_string(), error.to_string()))
}
