//! LUN numbers that living sessions know as another unit: an initiator that finds a new disk at an old number would write
//! to it what was meant for the old one.

use std::collections::BTreeMap;
use std::sync::Arc;

use iscsi_proto::{IscsiName, Tsih};
use target_core::iscsi::SessionView;
use target_core::scsi::LogicalUnit;

use super::usage::{InUse, UsingSession};
use crate::model::{LunMap, Model, Unit};

/// Numbers that are not free yet.
#[derive(Debug, Default)]
pub(super) struct Quarantine {
    numbers: BTreeMap<(IscsiName, u16), Former>,
}

/// What a number led to.
#[derive(Debug)]
struct Former {
    naa: Vec<u8>,
    /// Sessions that know it.
    known_to: Vec<Tsih>,
}

impl Quarantine {
    /// A number was taken from a target.
    pub(super) fn add(
        &mut self,
        target: &IscsiName,
        number: u16,
        unit: &Arc<LogicalUnit>,
        sessions: &[SessionView],
    ) {
        let known_to: Vec<_> = of_target(target, sessions).map(|session| session.tsih).collect();
        if !known_to.is_empty() {
            let former = Former {
                naa: unit.config().naa.clone(),
                known_to,
            };
            self.numbers.insert((target.clone(), number), former);
        }
    }

    /// The numbers that a model gives to another unit too early.
    pub(super) fn uses(&self, after: &Model, sessions: &[SessionView]) -> Vec<InUse> {
        let mut uses = Vec::new();
        for ((target, number), former) in &self.numbers {
            let key = format!("{target}/{number}");
            let Some(map) = after.get::<LunMap>(&key) else {
                continue;
            };
            let same = after
                .get::<Unit>(map.unit.as_str())
                .is_some_and(|unit| unit.naa_bytes().as_ref() == Some(&former.naa));
            let who: Vec<_> = of_target(target, sessions)
                .filter(|session| former.known_to.contains(&session.tsih))
                .map(UsingSession::of)
                .collect();
            if !same && !who.is_empty() {
                uses.push(InUse {
                    path: format!("luns/{key}"),
                    problem: format!("sessions still know LUN {number} as another disk"),
                    fix: "use another number, or wait until these sessions have ended".to_owned(),
                    forcible: false,
                    sessions: who,
                });
            }
        }
        uses
    }

    pub(super) fn forget_ended(&mut self, sessions: &[SessionView]) {
        self.numbers.retain(|(target, _), former| {
            of_target(target, sessions).any(|session| former.known_to.contains(&session.tsih))
        });
    }
}

fn of_target<'a>(
    target: &'a IscsiName,
    sessions: &'a [SessionView],
) -> impl Iterator<Item = &'a SessionView> {
    sessions
        .iter()
        .filter(move |session| session.target.as_ref() == Some(target))
}
