//! `/metrics`: the state of the node in Prometheus' text form, gathered when it is asked for. What the data path counts
//! comes from `management::exposition`; here is what is configured.

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use management::exposition::{CONTENT_TYPE, Exposition, FamilyKind};
use management::live::Condition;
use management::model::{LunMap, Target, Unit};

use crate::Web;
use crate::who::Viewer;

/// Answers a scrape.
pub(crate) async fn scrape(State(web): State<Web>, _who: Viewer) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], text(&web))
}

fn text(web: &Web) -> String {
    let mut out = Exposition::default();
    program(web, &mut out);
    stores(web, &mut out);
    let mut portals = out.family(
        "lunaport_portal_listening",
        FamilyKind::Gauge,
        "1 while a portal accepts connections. By its id, or its address where the command line gave it.",
    );
    let statuses = web.control().port_statuses();
    for portal in statuses.iter().filter(|portal| portal.enabled) {
        portals.value(&[("portal", portal.name())], u64::from(portal.listening));
    }
    out.node(web.control().node());
    out.cores(&web.0.cores);
    out.into_text()
}

fn program(web: &Web, out: &mut Exposition) {
    let model = web.control().model();
    out.program(web.0.version, web.0.began.elapsed());
    let counts = [
        (
            "lunaport_state_generation",
            "Changes made to the configuration so far.",
            model.generation,
        ),
        (
            "lunaport_targets",
            "Targets configured.",
            model.all::<Target>().count() as u64,
        ),
        (
            "lunaport_units",
            "Logical units configured.",
            model.all::<Unit>().count() as u64,
        ),
        (
            "lunaport_luns",
            "LUNs configured.",
            model.all::<LunMap>().count() as u64,
        ),
    ];
    for (name, help, count) in counts {
        out.family(name, FamilyKind::Gauge, help).value(&[], count);
    }
}

fn stores(web: &Web, out: &mut Exposition) {
    let statuses = web.control().store_statuses();
    let mut open = out.family(
        "lunaport_store_open",
        FamilyKind::Gauge,
        "1 while a store is open, 0 while it is missing.",
    );
    for store in &statuses {
        let is_open = store.condition == Condition::Open;
        open.value(&[("store", &store.id)], u64::from(is_open));
    }
    let mut size = out.family("lunaport_store_size_bytes", FamilyKind::Gauge, "Size of a store.");
    for (store, bytes) in statuses.iter().filter_map(|store| Some((store, store.size?))) {
        size.value(&[("store", &store.id)], bytes);
    }
    let mut allocated = out.family(
        "lunaport_store_allocated_bytes",
        FamilyKind::Gauge,
        "Space that a store takes where it is kept.",
    );
    for (store, bytes) in statuses
        .iter()
        .filter_map(|store| Some((store, store.allocated?)))
    {
        allocated.value(&[("store", &store.id)], bytes);
    }
}
