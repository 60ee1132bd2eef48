//! The command line as a client of the API: on this host by the socket in the state directory, elsewhere by `LUNAPORT_URL`
//! and `LUNAPORT_TOKEN`. Decides nothing: what the API says is what is shown.

mod http;
mod job;
mod table;
mod top;
mod trace;

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::error::StartError;
use crate::size::parse_size;
use http::Client;
pub(crate) use top::TopArgs;
use trace::TraceCommand;

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

#[derive(Debug, Subcommand)]
pub(crate) enum TargetCommand {
    /// List targets.
    List,
    /// Show one.
    Show { name: String },
    /// Make one. It admits nobody until a rule does.
    Create {
        name: String,
        /// Text for people.
        #[arg(long)]
        alias: Option<String>,
    },
    /// Change fields, such as enabled=false or alias=text.
    Set {
        name: String,
        #[arg(required = true, value_name = "FIELD=VALUE")]
        fields: Vec<String>,
    },
    /// Delete one, with its LUNs and rules; disks stay.
    Delete {
        name: String,
        /// Even when sessions use it.
        #[arg(long)]
        force: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum LunCommand {
    /// List LUNs.
    List {
        /// Of this target only.
        #[arg(long)]
        target: Option<String>,
    },
    /// Serve a store at a LUN; its logical unit is made when there is none.
    Add { target: String, lun: u16, store: String },
    /// Take a LUN away; the disk stays.
    Remove {
        target: String,
        lun: u16,
        /// Even when sessions use it.
        #[arg(long)]
        force: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// List stores and how they are.
    List,
    /// Make or adopt one: file:PATH with a size for a new one, block:/dev/X, memory:SIZE.
    Create {
        id: String,
        place: String,
        /// Size of a new file, such as 10G.
        #[arg(long)]
        size: Option<String>,
        /// Fill the new file with zeroes, so that all its space is taken; a job does that.
        #[arg(long, requires = "size")]
        zero: bool,
        /// With --zero: return when it is done.
        #[arg(long, requires = "zero")]
        wait: bool,
    },
    /// Make a file larger.
    Grow { id: String, size: String },
    /// Copy one to a new file, which is a store of its own when the job is done.
    Clone {
        id: String,
        /// Id of the copy.
        new: String,
        /// Its file.
        path: PathBuf,
        /// Key file of the copy; a copy of an encrypted store needs one of its own.
        #[arg(long, value_name = "FILE")]
        encrypt: Option<PathBuf>,
        /// Return when it is done.
        #[arg(long)]
        wait: bool,
    },
    /// Forget one; its data stay unless told otherwise.
    Delete {
        id: String,
        /// Remove its file as well.
        #[arg(long)]
        delete_data: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum InitiatorCommand {
    /// List initiators that are known by name.
    List,
    /// List access rules.
    Rules,
    /// Let an initiator, or all whose name matches (with *), log in to a target; `any` is everyone.
    Allow { target: String, who: String },
    /// Take an access rule away.
    Deny {
        rule: String,
        /// Even when sessions are there by it.
        #[arg(long)]
        force: bool,
    },
    /// List logins that failed, and why.
    Failures,
}

#[derive(Debug, Subcommand)]
pub(crate) enum JobCommand {
    /// List long work and how far it is.
    List,
    /// Wait until a job has ended.
    Wait { id: String },
    /// End a job before it is done.
    Cancel { id: String },
}

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

#[derive(Debug, Subcommand)]
pub(crate) enum UserCommand {
    /// List users.
    List,
    /// Make a user, or give one another role or password.
    Set {
        name: String,
        /// viewer, operator or admin.
        #[arg(long, default_value = "admin")]
        role: String,
        /// Holds the password; - is standard input. One newline at its end does not belong to it.
        #[arg(long, value_name = "FILE")]
        password_file: Option<PathBuf>,
    },
    /// Delete one.
    Delete { name: String },
    /// Make an API token, which is printed this one time.
    Token {
        id: String,
        /// viewer, operator or admin.
        #[arg(long, default_value = "viewer")]
        role: String,
    },
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
        Asked::Config(command) => config(&api, command),
        Asked::Initiator(command) => initiator(&api, command),
        Asked::Job(command) => job::run(&api, command),
        Asked::LogFilter(None) => api.show(&api.get("/log-filter")?),
        Asked::LogFilter(Some(filter)) => {
            api.show(&api.send("PUT", "/log-filter", &json!({"filter": filter}))?)
        }
        Asked::Lun(command) => lun(&api, command),
        Asked::Reservation(command) => reservation(&api, command),
        Asked::Session(command) => session(&api, command),
        Asked::Status => api.show(&api.get("/status")?),
        Asked::Store(command) => store(&api, command),
        Asked::Target(command) => target(&api, command),
        Asked::Top(args) => top::top(&api, args),
        Asked::User(command) => user(&api, command),
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

fn target(api: &Api, command: TargetCommand) -> Result<(), StartError> {
    match command {
        TargetCommand::List => api.show(&api.all("/targets")?),
        TargetCommand::Show { name } => api.show(&api.get(&format!("/targets/{name}"))?),
        TargetCommand::Create { name, alias } => {
            api.show(&api.send("POST", "/targets", &json!({"name": name, "alias": alias}))?)
        }
        TargetCommand::Set { name, fields } => {
            let mut patch = json!({});
            for field in fields {
                let (key, value) = field
                    .split_once('=')
                    .ok_or_else(|| StartError::option("target set", &field, "not of the form FIELD=VALUE"))?;
                patch[key] = serde_json::from_str(value).unwrap_or_else(|_| value.into());
            }
            api.show(&api.send("PATCH", &format!("/targets/{name}"), &patch)?)
        }
        TargetCommand::Delete { name, force } => api.delete(&format!("/targets/{name}?force={force}")),
    }
}

fn lun(api: &Api, command: LunCommand) -> Result<(), StartError> {
    match command {
        LunCommand::List { target: None } => api.show(&api.all("/luns")?),
        LunCommand::List { target: Some(target) } => api.show(&api.all(&format!("/luns?target={target}"))?),
        LunCommand::Add { target, lun, store } => {
            let units = api.all("/units")?;
            let known = units
                .as_array()
                .into_iter()
                .flatten()
                .find(|unit| unit["store"] == store.as_str());
            let mut document = json!({});
            let unit = match known {
                Some(unit) => unit["id"].clone(),
                None => {
                    document["units"] = json!([{"id": store, "store": store}]);
                    store.into()
                }
            };
            document["luns"] = json!([{"target": target, "lun": lun, "unit": unit}]);
            api.show(&api.send("PUT", "/config", &document)?["differences"])
        }
        LunCommand::Remove { target, lun, force } => {
            api.delete(&format!("/luns/{target}/{lun}?force={force}"))
        }
    }
}

fn store(api: &Api, command: StoreCommand) -> Result<(), StartError> {
    let bytes = |size: &str| {
        parse_size(size).ok_or_else(|| StartError::option("size", size, "no size; write for example 10G"))
    };
    match command {
        StoreCommand::List => api.show(&api.get("/status")?["stores"]),
        StoreCommand::Create {
            id,
            place,
            size,
            zero,
            wait,
        } => {
            let (kind, what) = place.split_once(':').unwrap_or((&place, ""));
            let place = match kind {
                "file" => {
                    json!({"kind": "file", "path": what, "size": size.as_deref().map(bytes).transpose()?})
                }
                "block" => json!({"kind": "block", "path": what}),
                "memory" | "null" => json!({"kind": kind, "size": bytes(what)?}),
                _ => {
                    let problem = "not of the form file:PATH, block:/dev/X or memory:SIZE";
                    return Err(StartError::option("store create", &place, problem));
                }
            };
            let store = json!({"id": id, "place": place});
            if zero {
                begun(api, "/jobs", &json!({"kind": "zero", "store": store}), wait)
            } else {
                api.show(&api.send("POST", "/stores", &store)?)
            }
        }
        StoreCommand::Grow { id, size } => {
            let patch = json!({"place": {"size": bytes(&size)?}});
            api.show(&api.send("PATCH", &format!("/stores/{id}"), &patch)?)
        }
        StoreCommand::Clone {
            id,
            new,
            path,
            encrypt,
            wait,
        } => {
            let body = json!({"id": new, "path": path, "encrypt": encrypt});
            begun(api, &format!("/stores/{id}/clone"), &body, wait)
        }
        StoreCommand::Delete { id, delete_data } => {
            api.delete(&format!("/stores/{id}?delete-data={delete_data}"))
        }
    }
}

/// Begins a job, and waits for its end when that is wanted.
fn begun(api: &Api, path: &str, body: &Value, wait: bool) -> Result<(), StartError> {
    let job = api.send("POST", path, body)?;
    if wait { job::wait(api, job) } else { api.show(&job) }
}

fn initiator(api: &Api, command: InitiatorCommand) -> Result<(), StartError> {
    match command {
        InitiatorCommand::List => api.show(&api.all("/initiators")?),
        InitiatorCommand::Rules => api.show(&api.all("/access")?),
        InitiatorCommand::Allow { target, who } => {
            let id = format!("{target}-{who}").to_ascii_lowercase();
            let id: String = id
                .chars()
                .map(|letter| {
                    if letter.is_ascii_alphanumeric() {
                        letter
                    } else {
                        '-'
                    }
                })
                .collect();
            // The end of both names tells more than their beginning.
            let id = id[id.len().saturating_sub(ID_MAX)..].trim_matches('-').to_owned();
            let mut rule = json!({"id": id, "target": target});
            match who.as_str() {
                "any" => rule["any"] = true.into(),
                who if who.contains(['*', '?']) => rule["pattern"] = who.into(),
                who => rule["initiator"] = who.into(),
            }
            api.show(&api.send("POST", "/access", &rule)?)
        }
        InitiatorCommand::Deny { rule, force } => api.delete(&format!("/access/{rule}?force={force}")),
        InitiatorCommand::Failures => api.show(&api.get("/login-failures")?["items"]),
    }
}

fn reservation(api: &Api, command: ReservationCommand) -> Result<(), StartError> {
    match command {
        ReservationCommand::List => api.show(&api.get("/reservations")?["items"]),
        ReservationCommand::Show { unit } => api.show(&api.get(&format!("/reservations/{unit}"))?),
        ReservationCommand::Clear { unit, force } => {
            api.delete(&format!("/reservations/{unit}?force={force}"))
        }
    }
}

fn session(api: &Api, command: SessionCommand) -> Result<(), StartError> {
    match command {
        SessionCommand::List => api.show(&api.get("/sessions")?["items"]),
        SessionCommand::Close { tsih } => api.delete(&format!("/sessions/{tsih}")),
        SessionCommand::Trace(command) => trace::run(api, command),
    }
}

fn config(api: &Api, command: ConfigCommand) -> Result<(), StartError> {
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

fn user(api: &Api, command: UserCommand) -> Result<(), StartError> {
    match command {
        UserCommand::List => api.show(&api.get("/users")?["items"]),
        UserCommand::Set {
            name,
            role,
            password_file,
        } => {
            let mut body = json!({"role": role});
            if let Some(file) = password_file {
                let text = read(&file, "--password-file")?;
                body["password"] = text.strip_suffix('\n').unwrap_or(&text).into();
            }
            api.show(&api.send("PUT", &format!("/users/{name}"), &body)?)
        }
        UserCommand::Delete { name } => api.delete(&format!("/users/{name}")),
        UserCommand::Token { id, role } => {
            api.show(&api.send("POST", "/tokens", &json!({"id": id, "role": role}))?)
        }
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

/// Characters of an id.
const ID_MAX: usize = 63;
