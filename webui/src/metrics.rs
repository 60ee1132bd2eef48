//! `/metrics`: the state of the node in Prometheus' text form, gathered when it is asked for.

use std::collections::BTreeMap;
use std::fmt::Write;

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use management::events::EventKind;
use management::live::Condition;
use management::model::{LunMap, Target, Unit};

use crate::Web;
use crate::who::Viewer;

/// Answers a scrape.
pub(crate) async fn scrape(State(web): State<Web>, _who: Viewer) -> impl IntoResponse {
    (
        [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")],
        text(&web),
    )
}

fn text(web: &Web) -> String {
    let (control, mut out) = (web.control(), String::new());
    let model = control.model();
    family(&mut out, "lunaport_info", "gauge", "The program.");
    line(&mut out, "lunaport_info", &[("version", web.0.version)], 1);
    family(
        &mut out,
        "lunaport_uptime_seconds",
        "gauge",
        "Seconds since the start.",
    );
    line(
        &mut out,
        "lunaport_uptime_seconds",
        &[],
        web.0.began.elapsed().as_secs(),
    );
    family(
        &mut out,
        "lunaport_state_generation",
        "gauge",
        "Changes made to the configuration so far.",
    );
    line(&mut out, "lunaport_state_generation", &[], model.generation);
    for (name, help, count) in [
        (
            "lunaport_targets",
            "Targets configured.",
            model.all::<Target>().count(),
        ),
        (
            "lunaport_units",
            "Logical units configured.",
            model.all::<Unit>().count(),
        ),
        ("lunaport_luns", "LUNs configured.", model.all::<LunMap>().count()),
    ] {
        family(&mut out, name, "gauge", help);
        line(&mut out, name, &[], count as u64);
    }
    stores(web, &mut out);
    sessions(web, &mut out);
    let portals = control.port_statuses();
    family(
        &mut out,
        "lunaport_portal_listening",
        "gauge",
        "1 while a portal accepts connections.",
    );
    for portal in portals {
        line(
            &mut out,
            "lunaport_portal_listening",
            &[("portal", &portal.id)],
            u64::from(portal.listening),
        );
    }
    out.push_str(&(web.0.metrics)());
    out
}

fn stores(web: &Web, out: &mut String) {
    let statuses = web.control().store_statuses();
    family(
        out,
        "lunaport_store_open",
        "gauge",
        "1 while a store is open, 0 while it is missing.",
    );
    for store in &statuses {
        line(
            out,
            "lunaport_store_open",
            &[("store", &store.id)],
            u64::from(store.condition == Condition::Open),
        );
    }
    family(out, "lunaport_store_size_bytes", "gauge", "Size of a store.");
    for (store, size) in statuses.iter().filter_map(|store| Some((store, store.size?))) {
        line(out, "lunaport_store_size_bytes", &[("store", &store.id)], size);
    }
    family(
        out,
        "lunaport_store_allocated_bytes",
        "gauge",
        "Space that a store takes where it is kept.",
    );
    for (store, bytes) in statuses
        .iter()
        .filter_map(|store| Some((store, store.allocated?)))
    {
        line(
            out,
            "lunaport_store_allocated_bytes",
            &[("store", &store.id)],
            bytes,
        );
    }
}

fn sessions(web: &Web, out: &mut String) {
    let control = web.control();
    let mut by_target: BTreeMap<(String, String), u64> = BTreeMap::new();
    for session in control.sessions() {
        *by_target
            .entry((session.target.unwrap_or_default(), session.transport))
            .or_default() += 1;
    }
    family(
        out,
        "lunaport_sessions",
        "gauge",
        "Sessions alive; discovery has no target.",
    );
    for ((target, transport), count) in &by_target {
        line(
            out,
            "lunaport_sessions",
            &[("target", target), ("transport", transport)],
            *count,
        );
    }
    family(
        out,
        "lunaport_half_open_logins",
        "gauge",
        "Connections in their login.",
    );
    line(
        out,
        "lunaport_half_open_logins",
        &[],
        control.half_open_logins().len() as u64,
    );
    family(
        out,
        "lunaport_abandoned_commands",
        "gauge",
        "Commands that were aborted while their store still works.",
    );
    line(
        out,
        "lunaport_abandoned_commands",
        &[],
        control.node().abandoned_commands() as u64,
    );
    let counts = control.events().counts();
    family(
        out,
        "lunaport_logins_total",
        "counter",
        "Logins since the start, by result.",
    );
    for (kind, result) in [
        (EventKind::LoggedIn, "success"),
        (EventKind::LoginFailed, "failure"),
    ] {
        line(
            out,
            "lunaport_logins_total",
            &[("result", result)],
            counts.get(&kind).copied().unwrap_or(0),
        );
    }
}

fn family(out: &mut String, name: &str, kind: &str, help: &str) {
    // Writing to a string does not fail.
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn line(out: &mut String, name: &str, labels: &[(&str, &str)], value: u64) {
    out.push_str(name);
    for (place, (label, text)) in labels.iter().enumerate() {
        let text = text
            .replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace('\n', "\\n");
        let _ = write!(out, "{}{label}=\"{text}\"", if place == 0 { '{' } else { ',' });
    }
    if !labels.is_empty() {
        out.push('}');
    }
    let _ = writeln!(out, " {value}");
}
