//! `lunaport session trace`: PDUs of chosen connections, as a table or as a file for Wireshark.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use management::trace::TraceRow;
use serde_json::{Value, json};

use super::Api;
use crate::error::StartError;
use crate::size::parse_size;

#[derive(Debug, Subcommand)]
pub(crate) enum TraceCommand {
    /// Begin one, of a session or of logins to come.
    Start(Start),
    /// List traces.
    List,
    /// Show what was traced so far.
    Show { id: u32 },
    /// Save what was traced so far as a capture file (pcapng); - is standard output.
    Save { id: u32, file: PathBuf },
    /// End one and keep what it holds.
    Stop { id: u32 },
    /// End one and forget what it holds. Four are kept at most.
    Delete { id: u32 },
}

#[derive(Args, Debug)]
#[group(id = "subject", required = true, multiple = true, args = ["session", "initiator", "address"])]
pub(crate) struct Start {
    /// All connections of this session.
    #[arg(long, value_name = "TSIH", conflicts_with_all = ["initiator", "address"])]
    session: Option<u16>,
    /// The next connections of initiators whose name is this, or matches it (with * and ?).
    #[arg(long, value_name = "NAME")]
    initiator: Option<String>,
    /// The next connections from this address or network.
    #[arg(long, value_name = "ADDR[/BITS]")]
    address: Option<String>,
    /// How long.
    #[arg(long, default_value_t = 60)]
    seconds: u32,
    /// Data to keep of each PDU, such as 512 or 64K.
    #[arg(long, value_name = "SIZE", default_value = "0")]
    payload: String,
    /// End when there is no more room, rather than letting the oldest PDUs go.
    #[arg(long)]
    stop_when_full: bool,
}

pub(super) fn run(api: &Api, command: TraceCommand) -> Result<(), StartError> {
    match command {
        TraceCommand::Start(start) => api.show(&api.send("POST", "/traces", &start.wish()?)?),
        TraceCommand::List => api.show(&api.get("/traces")?["items"]),
        TraceCommand::Show { id } => {
            let rows = api.all(&format!("/traces/{id}/pdus"))?;
            if api.json { api.show(&rows) } else { print(rows) }
        }
        TraceCommand::Save { id, file } => save(
            &api.client.take("GET", &format!("/traces/{id}/pcap"), None)?,
            &file,
        ),
        TraceCommand::Stop { id } => {
            api.show(&api.send("POST", &format!("/traces/{id}/stop"), &json!({}))?)
        }
        TraceCommand::Delete { id } => api.delete(&format!("/traces/{id}")),
    }
}

impl Start {
    fn wish(self) -> Result<Value, StartError> {
        let payload = match self.payload.as_str() {
            "0" => 0,
            size => parse_size(size).ok_or_else(|| {
                StartError::option("--payload", size, "no size; write for example 512 or 64K")
            })?,
        };
        let mut wish = json!({
            "seconds": self.seconds,
            "payload": payload,
            "stop_when_full": self.stop_when_full,
        });
        if let Some(session) = self.session {
            wish["session"] = session.into();
        }
        if let Some(initiator) = self.initiator {
            wish["initiator"] = initiator.into();
        }
        if let Some(address) = self.address {
            wish["address"] = address.into();
        }
        Ok(wish)
    }
}

/// A line an entry: when, on which connection, in which direction, what.
fn print(rows: Value) -> Result<(), StartError> {
    let rows: Vec<TraceRow> = serde_json::from_value(rows)
        .map_err(|error| StartError::Usage(format!("the answer makes no sense: {error}")))?;
    let first = rows.first().map_or(0, |row| row.time_us);
    let mut out = io::stdout().lock();
    for row in &rows {
        let time = row.time_us.saturating_sub(first);
        let (seconds, micros) = (time / 1_000_000, time % 1_000_000);
        let arrow = match row.from.as_deref() {
            Some("initiator") => "->",
            Some(_) => "<-",
            None => "--",
        };
        let (connection, name, details) = (row.connection, &row.name, row.details());
        // Nobody may be reading any more.
        if writeln!(
            out,
            "{seconds:>4}.{micros:06} {connection:>4} {arrow} {name}: {details}"
        )
        .is_err()
        {
            break;
        }
    }
    Ok(())
}

/// Readable by its owner alone: there may be data in it.
fn save(bytes: &[u8], file: &Path) -> Result<(), StartError> {
    let saved = if file == Path::new("-") {
        io::stdout().write_all(bytes)
    } else {
        let opened = File::options()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(file);
        opened.and_then(|mut opened| opened.write_all(bytes))
    };
    saved.map_err(|error| {
        StartError::option(
            "session trace save",
            file.display().to_string(),
            error.to_string(),
        )
    })
}
