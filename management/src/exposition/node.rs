//! What the node counts: by logical unit, by initiator and logical unit, by transport; sessions and logins.

use std::collections::BTreeMap;

use target_core::iscsi::Node;
use target_core::metrics::{Gathered, HistogramCounts, KindCounts, LunCounts, function_name};

use super::{Detail, Exposition, FamilyKind};

/// The counts of one place, with its labels.
type Row<'a> = (Vec<(&'static str, String)>, &'a LunCounts);

impl Exposition {
    /// Everything that the data path counts.
    pub fn node(&mut self, node: &Node) {
        let gathered = node.counts();
        self.sessions(node);
        self.logins(&gathered);
        let luns: Vec<Row<'_>> = gathered
            .luns
            .iter()
            .map(|row| {
                let labels = vec![("target", row.target.to_string()), ("lun", row.lun.to_string())];
                (labels, &row.counts)
            })
            .collect();
        self.level("lun", "a logical unit", &luns, Detail::Fine);
        let initiators: Vec<Row<'_>> = gathered
            .initiators
            .iter()
            .map(|row| {
                let labels = vec![
                    ("initiator", row.initiator.to_string()),
                    ("target", row.target.to_string()),
                    ("lun", row.lun.to_string()),
                ];
                (labels, &row.counts)
            })
            .collect();
        self.level(
            "initiator",
            "an initiator at a logical unit",
            &initiators,
            Detail::Coarse,
        );
        let transports: Vec<Row<'_>> = gathered
            .transports
            .iter()
            .map(|row| (vec![("transport", row.transport.to_owned())], &row.counts))
            .collect();
        self.level("transport", "a transport", &transports, Detail::Fine);
        self.links(&gathered);
    }

    fn sessions(&mut self, node: &Node) {
        let mut by_target: BTreeMap<(String, &str), u64> = BTreeMap::new();
        for session in node.sessions() {
            let target = session.target.map(|target| target.to_string());
            *by_target
                .entry((target.unwrap_or_default(), session.transport))
                .or_default() += 1;
        }
        let mut sessions = self.family(
            "lunaport_sessions",
            FamilyKind::Gauge,
            "Sessions alive; discovery has no target.",
        );
        for ((target, transport), count) in &by_target {
            sessions.value(&[("target", target), ("transport", transport)], *count);
        }
        let logins = node.logins().len() as u64;
        self.family(
            "lunaport_half_open_logins",
            FamilyKind::Gauge,
            "Connections in their login.",
        )
        .value(&[], logins);
        self.family(
            "lunaport_abandoned_commands",
            FamilyKind::Gauge,
            "Commands whose connection is gone while their store still works.",
        )
        .value(&[], node.abandoned_commands() as u64);
    }

    fn logins(&mut self, gathered: &Gathered) {
        let mut logins = self.family(
            "lunaport_logins_total",
            FamilyKind::Counter,
            "Logins by how they ended.",
        );
        for row in &gathered.logins {
            logins.value(&[("transport", row.transport), ("result", row.result)], row.count);
        }
    }

    /// The families of one level; `what` is whose.
    fn level(&mut self, level: &str, what: &str, rows: &[Row<'_>], detail: Detail) {
        let name = |metric: &str| format!("lunaport_{level}_{metric}");
        let by_kind: [(&str, &str, fn(&KindCounts) -> u64); 2] = [
            ("commands_total", "Commands answered at", |kind| {
                kind.latency.count()
            }),
            ("bytes_total", "Bytes moved at", |kind| kind.bytes),
        ];
        for (metric, help, value) in by_kind {
            let mut family = self.family(name(metric), FamilyKind::Counter, &format!("{help} {what}."));
            for (labels, counts) in rows {
                for (op, kind) in counts.kinds() {
                    family.value(&with_op(labels, op), value(kind));
                }
            }
        }
        let histograms: [(&str, &str, fn(&KindCounts) -> &HistogramCounts); 3] = [
            (
                "latency_seconds",
                "From the hand-over of a command to its end, at",
                |kind| &kind.latency,
            ),
            (
                "queue_wait_seconds",
                "What of the latency was waiting for a turn or for buffers, at",
                |kind| &kind.queue_wait,
            ),
            (
                "store_seconds",
                "What of the latency the store and the command's own work took, at",
                |kind| &kind.store,
            ),
        ];
        for (metric, help, value) in histograms {
            let mut family = self.family(name(metric), FamilyKind::Histogram, &format!("{help} {what}."));
            for (labels, counts) in rows {
                for (op, kind) in counts.kinds() {
                    // What was never done has no series: most initiators do nothing of one kind.
                    if value(kind).count() > 0 {
                        family.histogram(&with_op(labels, op), value(kind), detail);
                    }
                }
            }
        }
        let mut family = self.family(
            name("r2t_wait_seconds"),
            FamilyKind::Histogram,
            &format!("What a command waited for the Data-Out that it had asked for, at {what}."),
        );
        for (labels, counts) in rows {
            if counts.r2t_wait.count() > 0 {
                family.histogram(&borrowed(labels), &counts.r2t_wait, detail);
            }
        }
        let plain: [(&str, FamilyKind, &str, fn(&LunCounts) -> u64); 7] = [
            ("in_flight", FamilyKind::Gauge, "Commands under way at", |it| {
                it.in_flight
            }),
            (
                "aborted_commands_total",
                FamilyKind::Counter,
                "Commands aborted at",
                |it| it.aborted,
            ),
            (
                "busy_total",
                FamilyKind::Counter,
                "Commands answered with BUSY or TASK SET FULL at",
                |it| it.busy,
            ),
            (
                "errors_total",
                FamilyKind::Counter,
                "Commands that ended with CHECK CONDITION, unit attentions apart, at",
                |it| it.failed,
            ),
            (
                "reservation_conflicts_total",
                FamilyKind::Counter,
                "Commands answered with RESERVATION CONFLICT at",
                |it| it.conflicts,
            ),
            (
                "resets_total",
                FamilyKind::Counter,
                "Logical unit and target resets at",
                |it| it.resets,
            ),
            (
                "unit_attentions_total",
                FamilyKind::Counter,
                "Unit attentions told at",
                |it| it.unit_attentions,
            ),
        ];
        for (metric, kind, help, value) in plain {
            let mut family = self.family(name(metric), kind, &format!("{help} {what}."));
            for (labels, counts) in rows {
                family.value(&borrowed(labels), value(counts));
            }
        }
    }

    /// What connections come to, by transport; digest errors also by initiator, since it is one cable that is bad.
    fn links(&mut self, gathered: &Gathered) {
        let mut digests = self.family(
            "lunaport_transport_digest_errors_total",
            FamilyKind::Counter,
            "Digests that did not match, by transport.",
        );
        for row in &gathered.transports {
            digests.value(
                &[("transport", row.transport), ("part", "header")],
                row.link.header_digest_errors,
            );
            digests.value(
                &[("transport", row.transport), ("part", "data")],
                row.link.data_digest_errors,
            );
        }
        let mut by_initiator: BTreeMap<(String, String), [u64; 2]> = BTreeMap::new();
        for session in &gathered.sessions {
            let key = (
                session.nexus.initiator.name.to_string(),
                session.nexus.target.name.to_string(),
            );
            let [header, data] = by_initiator.entry(key).or_default();
            *header += session.link.header_digest_errors;
            *data += session.link.data_digest_errors;
        }
        let mut digests = self.family(
            "lunaport_session_digest_errors_total",
            FamilyKind::Counter,
            "Digests that did not match in the sessions that an initiator has now.",
        );
        for ((initiator, target), [header, data]) in &by_initiator {
            for (part, count) in [("header", header), ("data", data)] {
                let labels = [("initiator", &**initiator), ("target", target), ("part", part)];
                digests.value(&labels, *count);
            }
        }
        let mut round_trip = self.family(
            "lunaport_transport_nop_round_trip_seconds",
            FamilyKind::Histogram,
            "From a NOP-In that asks to its answer, by transport.",
        );
        for row in &gathered.transports {
            round_trip.histogram(
                &[("transport", row.transport)],
                &row.link.nop_round_trip,
                Detail::Fine,
            );
        }
        let mut management = self.family(
            "lunaport_transport_task_management_total",
            FamilyKind::Counter,
            "Task management requests by function and transport.",
        );
        for row in &gathered.transports {
            for (place, count) in row.link.task_management.iter().enumerate() {
                let labels = [("transport", row.transport), ("function", function_name(place))];
                management.value(&labels, *count);
            }
        }
    }
}

fn borrowed<'a>(labels: &'a [(&'static str, String)]) -> Vec<(&'a str, &'a str)> {
    labels.iter().map(|(name, text)| (*name, text.as_str())).collect()
}

fn with_op<'a>(labels: &'a [(&'static str, String)], op: &'a str) -> Vec<(&'a str, &'a str)> {
    let mut labels = borrowed(labels);
    labels.push(("op", op));
    labels
}
