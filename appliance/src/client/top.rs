//! `lunaport top`: what goes on, by LUN and initiator, again and again.

use std::io::{self, IsTerminal, Write};
use std::thread;
use std::time::Duration;

use clap::Args;
use serde_json::Value;

use super::{Api, table};
use crate::error::StartError;

#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct TopArgs {
    /// Show it once, and end.
    #[arg(long)]
    once: bool,

    /// Seconds from one look to the next; rates are those of the last two seconds.
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,

    /// Show LUNs without their initiators.
    #[arg(long)]
    luns: bool,
}

/// Shows until it is ended, or nobody reads.
pub(super) fn top(api: &Api, args: TopArgs) -> Result<(), StartError> {
    let clears = !args.once && !api.json && io::stdout().is_terminal();
    loop {
        let sample = api.get("/stats")?;
        let text = if api.json {
            // A line each, for who reads them as they come.
            sample.to_string()
        } else {
            screen(&sample, args.luns)
        };
        let start = if clears { HOME_AND_CLEAR } else { "" };
        let mut out = io::stdout();
        let shown = writeln!(out, "{start}{text}").and_then(|()| out.flush());
        if args.once || shown.is_err() {
            return Ok(());
        }
        thread::sleep(Duration::from_secs(args.interval));
    }
}

fn screen(sample: &Value, luns_only: bool) -> String {
    let total = &sample["total"];
    let mut text = format!(
        "{} IOPS, {}/s read, {}/s written, mean {}, 99% {}, {} in flight",
        number(&total["iops"]),
        bytes(&total["read"]["bytes_per_second"]),
        bytes(&total["write"]["bytes_per_second"]),
        latency(&total["mean_us"]),
        latency(&total["p99_us"]),
        total["in_flight"],
    );
    let mut rows = Vec::new();
    let none = Vec::new();
    let initiators = sample["initiators"].as_array().unwrap_or(&none);
    for lun in sample["luns"].as_array().unwrap_or(&none) {
        rows.push(row(lun, ""));
        let here = initiators
            .iter()
            .filter(|it| !luns_only && it["target"] == lun["target"] && it["lun"] == lun["lun"]);
        rows.extend(here.map(|it| row(it, it["initiator"].as_str().unwrap_or_default())));
    }
    text.push_str("\n\n");
    text.push_str(&if rows.is_empty() {
        "no LUN was used yet".to_owned()
    } else {
        table::lines(HEADING, &rows)
    });
    text
}

/// A LUN's line, or that of an initiator below it.
fn row(rates: &Value, initiator: &str) -> Vec<String> {
    let (target, lun) = if initiator.is_empty() {
        (table::cell(&rates["target"]), rates["lun"].to_string())
    } else {
        (format!("  {}", table::cell(&initiator.into())), String::new())
    };
    vec![
        target,
        lun,
        number(&rates["read"]["iops"]),
        number(&rates["write"]["iops"]),
        bytes(&rates["read"]["bytes_per_second"]),
        bytes(&rates["write"]["bytes_per_second"]),
        latency(&rates["mean_us"]),
        latency(&rates["p99_us"]),
        latency(&rates["queue_mean_us"]),
        latency(&rates["store_mean_us"]),
        rates["in_flight"].to_string(),
    ]
}

fn number(value: &Value) -> String {
    format!("{:.0}", value.as_f64().unwrap_or(0.0))
}

fn bytes(value: &Value) -> String {
    let mut value = value.as_f64().unwrap_or(0.0);
    for unit in ["B", "KiB", "MiB"] {
        if value < 1000.0 {
            return if unit == "B" {
                format!("{value:.0} B")
            } else {
                format!("{value:.1} {unit}")
            };
        }
        value /= 1024.0;
    }
    format!("{value:.1} GiB")
}

fn latency(value: &Value) -> String {
    match value.as_f64() {
        None => "-".to_owned(),
        Some(micros) if micros < 1000.0 => format!("{micros:.0} µs"),
        Some(micros) if micros < 1e6 => format!("{:.1} ms", micros / 1e3),
        Some(micros) => format!("{:.1} s", micros / 1e6),
    }
}

const HEADING: &[&str] = &[
    "TARGET, INITIATOR",
    "LUN",
    "READ/s",
    "WRITE/s",
    "READ B/s",
    "WRITE B/s",
    "MEAN",
    "99%",
    "QUEUE",
    "STORE",
    "IN FLIGHT",
];
const HOME_AND_CLEAR: &str = "\u{1b}[H\u{1b}[2J";

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_lun_stands_above_its_initiators() {
        let rates = |read: f64| {
            json!({
                "iops": read, "bytes_per_second": read * 4096.0, "mean_us": 90.4, "p99_us": 1500.0, "in_flight": 3,
                "read": {"iops": read, "bytes_per_second": read * 4096.0},
                "write": {"iops": 0.0, "bytes_per_second": 0.0},
            })
        };
        let named = |mut rates: Value, more: Value| {
            for (key, value) in more.as_object().unwrap() {
                rates[key] = value.clone();
            }
            rates
        };
        let sample = json!({
            "total": rates(1000.0),
            "luns": [named(rates(1000.0), json!({"target": "t", "lun": 3}))],
            "initiators": [
                named(rates(1000.0), json!({"target": "t", "lun": 3, "initiator": "host\u{1b}[2J"})),
                named(rates(1.0), json!({"target": "t", "lun": 4, "initiator": "other"})),
            ],
        });
        assert_eq!(
            screen(&sample, false),
            "1000 IOPS, 3.9 MiB/s read, 0 B/s written, mean 90 µs, 99% 1.5 ms, 3 in flight\n\n\
             TARGET, INITIATOR  LUN  READ/s  WRITE/s  READ B/s  WRITE B/s  MEAN   99%     QUEUE  STORE  IN FLIGHT\n\
             t                  3    1000    0        3.9 MiB   0 B        90 µs  1.5 ms  -      -      3\n\
             \u{20} host[2J               1000    0        3.9 MiB   0 B        90 µs  1.5 ms  -      -      3"
        );
        assert_eq!(screen(&sample, true).lines().count(), 4);
    }
}
