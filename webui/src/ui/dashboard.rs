//! The dashboard: whether all is well, what goes on, and how much of everything there is. The rates in its tables are
//! those of the last interval; a script goes on from there and draws the last minutes.

use std::collections::BTreeMap;

use askama::Template;
use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use management::control::SessionStatus;
use management::live::{Condition, StoreStatus};
use management::model::{Initiator, LunMap};
use management::rates::{Rates, Sample};

use super::frame::{Frame, Section, page};
use super::visitor::Visitor;
use super::words::Shown;
use super::{events, jobs};
use crate::Web;
use crate::api::{Status, status_of};

#[derive(Template)]
#[template(path = "dashboard.html")]
struct DashboardPage {
    frame: Frame,
    status: Status,
    jobs: Vec<jobs::Row>,
    total: Shown,
    /// With a target: who only discovers is not counted.
    sessions: usize,
    luns: Vec<LunRow>,
    /// LUNs that are not in the table.
    luns_left_out: usize,
    initiators: Vec<InitiatorRow>,
    initiators_left_out: usize,
    capacity: Capacity,
    stores: Vec<StoreRow>,
    stores_left_out: usize,
    events: Vec<events::Row>,
}

/// A LUN and what it does.
struct LunRow {
    key: String,
    target: String,
    lun: u16,
    unit: String,
    rates: Shown,
}

/// An initiator and what it does at all LUNs together.
struct InitiatorRow {
    name: String,
    description: String,
    rates: Shown,
}

/// How much there is of all stores together.
struct Capacity {
    size: u64,
    /// Bytes taken where they are kept.
    used: u64,
}

/// A store and how full it is.
struct StoreRow {
    status: StoreStatus,
    percent: u64,
}

pub(super) fn routes() -> Router<Web> {
    Router::new().route("/", get(show_))
}

async fn show_(State(web): State<Web>, visitor: Visitor) -> Response {
    let status = status_of(&web);
    let sample = web.control().rates().latest();
    let sample = sample.as_deref();
    let (luns, luns_left_out) = busiest(luns(&web, sample), |row| &row.rates);
    let (initiators, initiators_left_out) = busiest(initiators(&web, sample), |row| &row.rates);
    let open = status
        .stores
        .iter()
        .filter(|store| store.condition == Condition::Open);
    let capacity = Capacity {
        size: open.clone().filter_map(|store| store.size).sum(),
        used: open.filter_map(|store| store.allocated).sum(),
    };
    let (stores, stores_left_out) = fullest(&status.stores);
    page(&DashboardPage {
        frame: visitor.frame(Section::Dashboard, "Dashboard"),
        jobs: jobs::running(&web),
        sessions: at_targets(&web).count(),
        total: Shown(sample.map(|sample| sample.total.clone())),
        luns,
        luns_left_out,
        initiators,
        initiators_left_out,
        capacity,
        stores,
        stores_left_out,
        events: events::newest(&web, EVENTS),
        status,
    })
}

fn luns(web: &Web, sample: Option<&Sample>) -> Vec<LunRow> {
    let model = web.control().model();
    let row = |map: &LunMap| {
        let target = map.target.to_string();
        LunRow {
            key: format!("{target}/{}", map.lun),
            lun: map.lun,
            unit: map.unit.to_string(),
            rates: Shown::of_lun(sample, &target, map.lun),
            target,
        }
    };
    model.all::<LunMap>().map(row).collect()
}

fn at_targets(web: &Web) -> impl Iterator<Item = SessionStatus> {
    let sessions = web.control().sessions().into_iter();
    sessions.filter(|session| session.target.is_some())
}

/// Those that are logged in to a target; what they do at several LUNs is added up.
fn initiators(web: &Web, sample: Option<&Sample>) -> Vec<InitiatorRow> {
    let model = web.control().model();
    let mut all: BTreeMap<String, Option<Rates>> = BTreeMap::new();
    for session in at_targets(web) {
        all.entry(session.initiator).or_default();
    }
    for row in sample.into_iter().flat_map(|sample| &sample.initiators) {
        if let Some(sum) = all.get_mut(&row.initiator) {
            *sum = Some(
                sum.take()
                    .map_or_else(|| row.rates.clone(), |sum| together(&sum, &row.rates)),
            );
        }
    }
    let row = |(name, rates): (String, Option<Rates>)| InitiatorRow {
        description: model
            .get::<Initiator>(&name)
            .and_then(|known| known.description.clone())
            .unwrap_or_default(),
        rates: Shown(rates),
        name,
    };
    all.into_iter().map(row).collect()
}

/// Two rates as one. Means are weighted by operations; of the slowest the slower one is told.
fn together(one: &Rates, other: &Rates) -> Rates {
    let iops = one.iops + other.iops;
    let weighted = |rates: &Rates| rates.mean_us.unwrap_or_default() * rates.iops;
    let mean = (weighted(one) + weighted(other)) / iops;
    Rates {
        iops,
        bytes_per_second: one.bytes_per_second + other.bytes_per_second,
        mean_us: (iops > 0.0).then_some(mean),
        p99_us: [one.p99_us, other.p99_us].into_iter().flatten().reduce(f64::max),
        in_flight: one.in_flight + other.in_flight,
        ..Rates::default()
    }
}

/// The rows with the most throughput, and how many others there are.
fn busiest<T>(mut rows: Vec<T>, rates: impl Fn(&T) -> &Shown) -> (Vec<T>, usize) {
    let moved = |row: &T| rates(row).0.as_ref().map_or(0.0, |rates| rates.bytes_per_second);
    // Stable: rows that do nothing stay in the order of their names.
    rows.sort_by(|one, other| moved(other).total_cmp(&moved(one)));
    let left_out = rows.len().saturating_sub(ROWS);
    rows.truncate(ROWS);
    (rows, left_out)
}

/// The stores with the least space left in them, and how many others there are.
fn fullest(all: &[StoreStatus]) -> (Vec<StoreRow>, usize) {
    let percent = |store: &StoreStatus| match (store.allocated, store.size) {
        (Some(used), Some(size)) if size > 0 => (used.saturating_mul(100) / size).min(100),
        _ => 0,
    };
    let mut rows: Vec<_> = all
        .iter()
        .map(|store| StoreRow {
            percent: percent(store),
            status: store.clone(),
        })
        .collect();
    let order = |row: &StoreRow| {
        (
            row.status.condition == Condition::Open,
            std::cmp::Reverse(row.percent),
        )
    };
    rows.sort_by_key(order);
    let left_out = rows.len().saturating_sub(STORES);
    rows.truncate(STORES);
    (rows, left_out)
}

/// Rows of each table of rates; `live.js` knows the number.
const ROWS: usize = 20;
const STORES: usize = 8;
const EVENTS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(iops: f64, mean_us: Option<f64>) -> Rates {
        Rates {
            iops,
            mean_us,
            bytes_per_second: iops,
            ..Rates::default()
        }
    }

    #[test]
    fn a_mean_of_two_counts_each_operation() {
        let both = together(&rates(30.0, Some(100.0)), &rates(10.0, Some(500.0)));
        assert_eq!((both.iops, both.mean_us), (40.0, Some(200.0)));
        assert_eq!(together(&rates(0.0, None), &rates(0.0, None)).mean_us, None);
    }

    #[test]
    fn the_busiest_come_first_and_the_rest_is_counted() {
        let rows: Vec<Shown> = (0_u8..25)
            .map(|it| Shown(Some(rates(f64::from(it), None))))
            .collect();
        let (shown, left_out) = busiest(rows, |row| row);
        assert_eq!(shown[0].0.as_ref().unwrap().iops, 24.0);
        assert_eq!((shown.len(), left_out), (20, 5));
    }
}
