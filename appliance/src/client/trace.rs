//! `lunaport session trace`: PDUs of chosen connections, as a table or as a file for Wireshark.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
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
            if api.json { api.show(&rows) } else { print(&rows) }
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
fn print(rows: &Value) -> Result<(), StartError> {
    let mut out = io::stdout().lock();
    let first = rows.get(0).map_or(0, |row| number(row, "time_us"));
    for row in rows.as_array().into_iter().flatten() {
        let time = number(row, "time_us").saturating_sub(first);
        let arrow = match row["from"].as_str() {
            Some("initiator") => "->",
            Some(_) => "<-",
            None => "--",
        };
        let line = format!(
            "{:>4}.{:06} {:>4} {arrow} {}",
            time / 1_000_000,
            time % 1_000_000,
            number(row, "connection"),
            what(row)
        );
        // Nobody may be reading any more.
        if writeln!(out, "{line}").is_err() {
            break;
        }
    }
    Ok(())
}

fn what(row: &Value) -> String {
    let mut words = vec![text(&row["name"])];
    let named = [
        ("command", ""),
        ("status", ""),
        ("sense", "sense "),
        ("lun", "LUN "),
        ("itt", "ITT "),
        ("ttt", "TTT "),
        ("cmd_sn", "CmdSN "),
        ("stat_sn", "StatSN "),
        ("exp_stat_sn", "ExpStatSN "),
        ("data_sn", "DataSN "),
        ("offset", "offset "),
        ("expected_length", "expects "),
        ("note", ""),
    ];
    for (field, title) in named {
        if !row[field].is_null() {
            words.push(format!("{title}{}", text(&row[field])));
        }
    }
    if number(row, "data_length") > 0 {
        words.push(format!("{} bytes", number(row, "data_length")));
    }
    let pairs = row["text"].as_array().into_iter().flatten();
    words.extend(pairs.map(|pair| format!("{}={}", text(&pair["key"]), text(&pair["value"]))));
    words.join(", ")
}

/// Without what could command a terminal: an initiator may have written it.
fn text(value: &Value) -> String {
    let text = value
        .as_str()
        .map_or_else(|| value.to_string(), ToOwned::to_owned);
    text.chars()
        .map(|letter| if letter.is_control() { '·' } else { letter })
        .collect()
}

fn number(row: &Value, field: &str) -> u64 {
    row[field].as_u64().unwrap_or(0)
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
