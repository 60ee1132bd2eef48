//! Metrics and rates of the running program: what initiators did stands in them exactly, in a text that Prometheus takes,
//! and the dashboard and the alerts in `docs/` ask for nothing that is not there.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;
mod initiator;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use common::http::Client;
use common::initiator::Login;
use common::program::bound;
use common::{PATIENCE, Server, free_address};
use initiator::Initiator;
use serde_json::{Value, json};
use yaml_rust2::{Yaml, YamlLoader};

const TARGET: &str = "iqn.2026-11.org.example:a";
const NAME: &str = "iqn.2026-11.org.example:host";

/// A server with a disk of 1 MiB at LUN 3, and its state directory.
fn with_lun_3() -> (tempfile::TempDir, Server) {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let mut disk = common::one_disk(TARGET);
    disk["luns"][0]["lun"] = 3.into();
    server.here().put("/api/v1/config", &disk).is(200);
    (directory, server)
}

/// A session whose unit attention has been heard.
fn host(server: &Server, isid: u8) -> Initiator {
    let mut host = Initiator::log_in(&server.portal.to_string(), TARGET, isid);
    host.lun = 3;
    assert_eq!(host.command(&[0; 6], 0, &[]).sense(), (6, 0x29, 0));
    host
}

/// READ (10) of so many blocks at the beginning.
fn read(host: &mut Initiator, blocks: u8) -> u8 {
    let room = u32::from(blocks) * 512;
    host.command(&[0x28, 0, 0, 0, 0, 0, 0, 0, blocks, 0], room, &[])
        .status
}

/// Seven reads of 4096 bytes, a write of 512, an error, a reservation conflict, two unit attentions, a failed login.
fn do_something(server: &Server) -> (Initiator, Initiator) {
    let (mut one, mut two) = (host(server, 1), host(server, 2));
    for _ in 0..7 {
        assert_eq!(read(&mut one, 8), 0);
    }
    let written = one.command(&[0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0], 0, &[7; 512]);
    assert_eq!(written.status, 0);
    let beyond = one.command(&[0x28, 0, 0, 0xff, 0xff, 0xff, 0, 0, 1, 0], 512, &[]);
    assert_eq!(beyond.sense(), (5, 0x21, 0));
    // RESERVE (6) and RELEASE (6).
    assert_eq!(one.command(&[0x16, 0, 0, 0, 0, 0], 0, &[]).status, 0);
    assert_eq!(read(&mut two, 1), 0x18);
    assert_eq!(one.command(&[0x17, 0, 0, 0, 0, 0], 0, &[]).status, 0);
    assert!(
        Login::to("iqn.2026-11.org.example:nowhere")
            .at(server.portal)
            .is_err()
    );
    (one, two)
}

fn scrape(client: &Client) -> Text {
    let answer = client.get("/metrics");
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(
        answer.header("content-type"),
        Some("text/plain; version=0.0.4; charset=utf-8")
    );
    Text::parse(&answer.body)
}

/// A text that was taken apart, and held against the rules of the form on the way.
#[derive(Debug, Default)]
struct Text {
    /// Kind by family.
    kinds: BTreeMap<String, String>,
    /// Value by name and labels, as they stand in the text.
    series: BTreeMap<String, f64>,
}

impl Text {
    fn parse(text: &str) -> Self {
        assert!(text.ends_with('\n'));
        let (mut parsed, mut family, mut helped) = (Self::default(), String::new(), BTreeSet::new());
        for line in text.lines() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                let (name, help) = help.split_once(' ').unwrap();
                assert!(helped.insert(name.to_owned()), "HELP of {name} comes twice");
                assert!(!help.is_empty());
                family = name.to_owned();
            } else if let Some(kind) = line.strip_prefix("# TYPE ") {
                let (name, kind) = kind.split_once(' ').unwrap();
                assert_eq!(name, family, "TYPE follows HELP");
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
                assert!(!kind.eq("counter") || name.ends_with("_total"), "{name}");
                let twice = parsed.kinds.insert(name.to_owned(), kind.to_owned());
                assert_eq!(twice, None, "TYPE of {name} comes twice");
            } else {
                let (series, value) = line.rsplit_once(' ').unwrap();
                let name = series.split('{').next().unwrap();
                let base = if parsed.kinds[&family] == "histogram" {
                    let suffixes = ["_bucket", "_sum", "_count"];
                    let suffix = suffixes.iter().find_map(|suffix| name.strip_suffix(suffix));
                    suffix.unwrap_or_else(|| panic!("{line}"))
                } else {
                    name
                };
                assert_eq!(base, family, "a family stands in one place: {line}");
                labels(series);
                let twice = parsed.series.insert(series.to_owned(), value.parse().unwrap());
                assert_eq!(twice, None, "{series} comes twice");
            }
        }
        parsed.check_histograms();
        parsed
    }

    /// Buckets go up with their bounds, and the last one is the count.
    fn check_histograms(&self) {
        let mut buckets: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
        for (series, count) in &self.series {
            let mut labels = labels(series);
            if let Some((_, bound)) = labels.pop_if(|(name, _)| *name == "le") {
                let name = series.split("_bucket{").next().unwrap();
                let bound = if bound == "+Inf" {
                    f64::INFINITY
                } else {
                    bound.parse().unwrap()
                };
                buckets
                    .entry(format!("{name}_count{}", braced(&labels)))
                    .or_default()
                    .push((bound, *count));
            }
        }
        assert!(!buckets.is_empty());
        for (count, mut buckets) in buckets {
            buckets.sort_by(|one, other| one.0.total_cmp(&other.0));
            assert!(buckets.windows(2).all(|pair| pair[0].1 <= pair[1].1), "{count}");
            let (bound, all) = buckets[buckets.len() - 1];
            assert_eq!((bound, all), (f64::INFINITY, self.series[&count]), "{count}");
            assert!(self.series.contains_key(&count.replacen("_count", "_sum", 1)));
        }
    }

    /// The value of a series, by its name and labels in the order of the text.
    #[track_caller]
    fn value(&self, series: &str) -> f64 {
        let value = self.series.get(series).copied();
        value.unwrap_or_else(|| panic!("no {series} in {:#?}", self.series.keys()))
    }

    /// All series of a family that are not zero.
    fn told(&self, name: &str) -> Vec<(&str, f64)> {
        let begin = format!("{name}{{");
        let of_family = self
            .series
            .iter()
            .filter(|(series, _)| series.starts_with(&begin));
        of_family
            .filter(|(_, value)| **value != 0.0)
            .map(|(series, value)| (&series[name.len()..], *value))
            .collect()
    }
}

/// The labels of a series in their order; their values have no escapes in these tests.
fn labels(series: &str) -> Vec<(&str, &str)> {
    let Some((_, labels)) = series.split_once('{') else {
        return Vec::new();
    };
    let labels = labels.strip_suffix('}').unwrap();
    labels
        .split("\",")
        .map(|pair| {
            let (name, value) = pair.split_once("=\"").unwrap();
            (name, value.trim_end_matches('"'))
        })
        .collect()
}

/// Labels without the bound, as they stand in the text.
fn braced(labels: &[(&str, &str)]) -> String {
    let pairs: Vec<String> = labels
        .iter()
        .map(|(name, value)| format!("{name}=\"{value}\""))
        .collect();
    if pairs.is_empty() {
        String::new()
    } else {
        format!("{{{}}}", pairs.join(","))
    }
}

#[test]
fn what_initiators_did_stands_in_the_metrics_exactly() {
    let (_directory, server) = with_lun_3();
    let sessions = do_something(&server);
    let text = scrape(&server.here());
    let lun = format!("target=\"{TARGET}\",lun=\"3\"");
    let initiator = format!("initiator=\"{NAME}\",{lun}");
    for (level, labels) in [
        ("lun", &*lun),
        ("initiator", &*initiator),
        ("transport", "transport=\"tcp\""),
    ] {
        let told = |metric: &str| text.told(&format!("lunaport_{level}_{metric}"));
        let op = |op: &str| format!("{{{labels},op=\"{op}\"}}");
        let plain = format!("{{{labels}}}");
        // Eight reads that were answered well or not, and the one that met the reservation.
        assert_eq!(
            told("commands_total"),
            [(&*op("other"), 4.0), (&*op("read"), 9.0), (&*op("write"), 1.0)]
        );
        assert_eq!(
            told("bytes_total"),
            [(&*op("read"), 28_672.0), (&*op("write"), 512.0)]
        );
        assert_eq!(
            told("store_seconds_count"),
            [(&*op("other"), 2.0), (&*op("read"), 7.0), (&*op("write"), 1.0)]
        );
        assert_eq!(told("latency_seconds_count").len(), 3);
        assert_eq!(told("queue_wait_seconds_count").len(), 3);
        assert_eq!(told("errors_total"), [(&*plain, 1.0)]);
        assert_eq!(told("reservation_conflicts_total"), [(&*plain, 1.0)]);
        assert_eq!(told("unit_attentions_total"), [(&*plain, 2.0)]);
        for nothing in [
            "in_flight",
            "aborted_commands_total",
            "busy_total",
            "resets_total",
        ] {
            assert!(told(nothing).is_empty(), "{nothing}");
        }
    }
    assert_eq!(
        text.told("lunaport_logins_total"),
        [
            ("{transport=\"tcp\",result=\"not_found\"}", 1.0),
            ("{transport=\"tcp\",result=\"success\"}", 2.0)
        ]
    );
    assert_eq!(
        text.told("lunaport_sessions"),
        [(&*format!("{{target=\"{TARGET}\",transport=\"tcp\"}}"), 2.0)]
    );
    // That of the failed login may still be saying its last words.
    assert!(text.value("lunaport_core_connections{core=\"0\"}") >= 2.0);
    assert!(text.value("lunaport_core_busy_seconds_total{core=\"0\"}") > 0.0);
    assert!(text.value("lunaport_buffer_bytes{core=\"0\"}") > 0.0);
    drop(sessions);
    // With their sessions initiators leave the metrics, and what they did stays with the disk.
    let deadline = Instant::now() + PATIENCE;
    loop {
        let text = scrape(&server.here());
        if text.told("lunaport_initiator_commands_total").is_empty() {
            let reads = format!("lunaport_lun_commands_total{{{lun},op=\"read\"}}");
            break assert_eq!(text.value(&reads), 9.0);
        }
        assert!(Instant::now() < deadline, "the initiator stays");
    }
}

#[test]
fn rates_follow_what_is_done_and_are_kept() {
    let (_directory, server) = with_lun_3();
    let here = server.here();
    let mut lines = BufReader::new(here.follow("/api/v1/stats/stream")).lines();
    let mut next = || -> Value {
        let data = lines.find_map(|line| line.unwrap().strip_prefix("data:").map(|it| it.trim().to_owned()));
        serde_json::from_str(&data.unwrap()).unwrap()
    };
    next();
    let sessions = do_something(&server);
    let mut sample = next();
    while sample["luns"].as_array().unwrap().is_empty() {
        sample = next();
    }
    let interval = sample["interval"].as_f64().unwrap();
    assert!(interval > 1.0, "{sample}");
    let row = &sample["luns"][0];
    assert_eq!((&row["target"], &row["lun"]), (&json!(TARGET), &json!(3)));
    assert_eq!(sample["initiators"][0]["initiator"], NAME);
    assert_eq!(sample["sessions"][0]["target"], TARGET);
    // All of it may have fallen into two intervals.
    let history = here.get("/api/v1/stats/history").is(200);
    let done = |field: &str| -> f64 {
        let samples = history["samples"].as_array().unwrap();
        let done = |sample: &Value| {
            let rate = sample["total"]["read"][field].as_f64().unwrap();
            rate * sample["interval"].as_f64().unwrap()
        };
        samples.iter().map(done).sum()
    };
    assert!(done("iops") > 0.0 && done("iops") < 9.1, "{history}");
    assert!(done("bytes_per_second") < 28_673.0, "{history}");
    here.get("/api/v1/stats").is(200);
    here.get("/api/v1/stats/history?seconds=301").is(400);
    server.nobody().get("/api/v1/stats").is(401);
    drop(sessions);
}

#[test]
fn top_shows_a_table_once_or_json() {
    let (directory, server) = with_lun_3();
    let sessions = do_something(&server);
    let deadline = Instant::now() + PATIENCE;
    while server.here().get("/api/v1/stats").is(200)["luns"] == json!([]) {
        assert!(Instant::now() < deadline, "no rates");
    }
    let top = |more: &[&str]| -> String {
        let Output { status, stdout, .. } = Command::new(env!("CARGO_BIN_EXE_lunaport"))
            .env_clear()
            .args(["top", "--once", "--state-dir"])
            .arg(directory.path())
            .args(more)
            .output()
            .unwrap();
        assert!(status.success());
        String::from_utf8(stdout).unwrap()
    };
    let table = top(&[]);
    assert!(table.contains(TARGET) && table.contains(NAME), "{table}");
    assert!(!top(&["--luns"]).contains(NAME));
    let sample: Value = serde_json::from_str(&top(&["--json"])).unwrap();
    assert_eq!(sample["luns"][0]["lun"], 3);
    drop(sessions);
}

#[test]
fn the_log_is_changed_while_the_program_runs_and_the_audit_log_tells_who() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::start(directory.path());
    let here = server.here();
    assert_eq!(here.get("/api/v1/log-filter").is(200), json!({"filter": "info"}));
    let problem = here
        .put("/api/v1/log-filter", &json!({"filter": "lunaport=loud"}))
        .is(400);
    assert_eq!(problem["problems"][0]["path"], "filter", "{problem}");
    let said = Command::new(env!("CARGO_BIN_EXE_lunaport"))
        .env_clear()
        .args(["log-filter", "info,target_core=trace", "--state-dir"])
        .arg(directory.path())
        .output()
        .unwrap();
    assert!(said.status.success(), "{said:?}");
    server.says("what is logged was changed");
    here.put("/api/v1/config", &common::one_disk(TARGET)).is(200);
    let mut host = Initiator::log_in(&server.portal.to_string(), TARGET, 1);
    host.command(&[0; 6], 0, &[]);
    host.command(&[0; 6], 0, &[]);
    // A command's line says whose it is: the session's names and its own are in its spans.
    let line = server.says("TEST UNIT READY");
    assert!(line.contains(&format!("initiator={NAME}")), "{line}");
    assert!(line.contains("command{"), "{line}");
    let changed = here.get("/api/v1/events?kind=changed").is(200);
    let of_log = |event: &&Value| event["data"]["differences"][0]["path"] == "log-filter";
    let event = changed["items"].as_array().unwrap().iter().find(of_log).unwrap();
    assert!(event["actor"].as_str().unwrap().starts_with("uid "), "{event}");
    let difference = &event["data"]["differences"][0];
    assert_eq!(difference["before"]["filter"], "info");
    assert_eq!(difference["after"]["filter"], "info,target_core=trace");
}

#[test]
fn exports_are_measured_too() {
    let (portal, admin) = (free_address(), free_address());
    let directory = tempfile::tempdir().unwrap();
    let mut child = bound(env!("CARGO_BIN_EXE_lunaport"))
        .current_dir(directory.path())
        .env_clear()
        .args(["serve", "--export", "memory:1M", "--cores", "1"])
        .args(["--portal", &portal.to_string(), "--admin", &admin.to_string()])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let client = Client::tcp(admin);
    let deadline = Instant::now() + PATIENCE;
    while client.send("GET", "/healthz", None).is_err() {
        assert!(Instant::now() < deadline, "it does not start");
        std::thread::yield_now();
    }
    let target = "iqn.2026-11.org.lunaport:disks";
    let mut host = Initiator::log_in(&portal.to_string(), target, 1);
    assert_eq!(host.command(&[0; 6], 0, &[]).sense(), (6, 0x29, 0));
    assert_eq!(read(&mut host, 2), 0);
    let text = scrape(&client);
    let bytes = format!("lunaport_lun_bytes_total{{target=\"{target}\",lun=\"0\",op=\"read\"}}");
    assert_eq!(text.value(&bytes), 1024.0);
    child.kill().unwrap();
    child.wait().unwrap();
}

/// The rules of `docs/alerts.yml`: name and expression.
fn alerts() -> Vec<(String, String)> {
    let documents = YamlLoader::load_from_str(include_str!("../../docs/alerts.yml")).unwrap();
    let [document] = documents.as_slice() else {
        panic!("{} documents", documents.len())
    };
    let groups = document["groups"].as_vec().unwrap();
    let rules = groups.iter().flat_map(|group| group["rules"].as_vec().unwrap());
    let alert = |rule: &Yaml| {
        let text = |value: &Yaml| value.as_str().unwrap_or_else(|| panic!("{rule:?}")).to_owned();
        let severity = text(&rule["labels"]["severity"]);
        assert!(["critical", "warning"].contains(&&*severity), "{rule:?}");
        text(&rule["annotations"]["summary"]);
        text(&rule["annotations"]["action"]);
        (text(&rule["alert"]), text(&rule["expr"]))
    };
    rules.map(alert).collect()
}

#[test]
fn each_alert_is_a_rule_with_a_name_of_its_own_that_asks_for_metrics() {
    let alerts = alerts();
    let names: BTreeSet<_> = alerts.iter().map(|(name, _)| name).collect();
    assert_eq!((names.len(), alerts.len()), (13, 13));
    for (name, expression) in &alerts {
        assert!(expression.contains("lunaport_"), "{name}: {expression}");
    }
}

#[test]
fn the_dashboard_and_the_alerts_ask_for_nothing_that_is_not_there() {
    let (_directory, server) = with_lun_3();
    let sessions = do_something(&server);
    let text = scrape(&server.here());
    let mut label_names: BTreeSet<&str> = text
        .series
        .keys()
        .flat_map(|it| labels(it).into_iter().map(|(name, _)| name))
        .collect();
    // Every time series that Prometheus keeps has these.
    label_names.extend(["job", "instance"]);
    for (name, document) in [
        (
            "grafana-dashboard.json",
            include_str!("../../docs/grafana-dashboard.json"),
        ),
        // With what its texts name.
        ("alerts.yml", include_str!("../../docs/alerts.yml")),
    ] {
        let words = document.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        let asked: BTreeSet<&str> = words.filter(|word| word.starts_with("lunaport_")).collect();
        assert!(asked.len() > 10, "{name}: {asked:?}");
        for word in asked {
            let is_there = |name: &str| text.kinds.contains_key(name);
            let histogram = ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|suffix| word.strip_suffix(suffix))
                .is_some_and(|base| text.kinds.get(base).is_some_and(|kind| kind == "histogram"));
            let plain = is_there(word) && text.kinds[word] != "histogram";
            assert!(plain || histogram, "{name} asks for {word}");
        }
        for by in document.split(" by (").skip(1) {
            let list = by.split(')').next().unwrap();
            for label in list.split(',').map(str::trim) {
                assert!(label_names.contains(label), "{name} groups by {label}");
            }
        }
    }
    let _: Value = serde_json::from_str(include_str!("../../docs/grafana-dashboard.json")).unwrap();
    drop(sessions);
}
