//! What the wire did to PDUs, counted by their type, and what came about by chance: so that a run over many seeds can
//! prove that everything was tried.

use std::collections::BTreeMap;
use std::fmt;

/// Something that happens to a PDU on its way.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mishap {
    /// It does not arrive.
    Lost,
    /// It arrives, and a digest does not match.
    Damaged,
    /// It arrives behind the one that was sent after it.
    Overtaken,
}

/// Something that comes about in some worlds only.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Event {
    /// A second connection of a session over RDMA logged in.
    JoinedOverRdma,
    /// Task management ended a command that still had memory open on another connection.
    AbortedByAnother,
}

/// How often which mishap befell which type of PDU, and how often what came about.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    mishaps: BTreeMap<&'static str, [u64; 3]>,
    events: BTreeMap<Event, u64>,
}

impl Tally {
    pub(crate) fn count(&mut self, name: &'static str, mishap: Mishap) {
        self.mishaps.entry(name).or_default()[mishap as usize] += 1;
    }

    pub(crate) fn count_event(&mut self, event: Event) {
        *self.events.entry(event).or_default() += 1;
    }

    /// Adds what was counted elsewhere.
    pub fn add(&mut self, other: &Self) {
        for (name, counts) in &other.mishaps {
            let sums = self.mishaps.entry(name).or_default();
            sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        for (event, count) in &other.events {
            *self.events.entry(*event).or_default() += count;
        }
    }

    /// What did not happen, of all that can happen to sessions of this ErrorRecoveryLevel.
    #[must_use]
    pub fn missing(&self, level: u8) -> Vec<String> {
        // Nobody asks for anything again at level 0.
        let said = NAMES.iter().filter(|name| level > 0 || **name != "SNACK Request");
        let all = said.flat_map(|name| MISHAPS.map(|mishap| (*name, mishap)));
        let mishaps = all.filter(|(name, mishap)| {
            self.mishaps
                .get(name)
                .is_none_or(|counts| counts[*mishap as usize] == 0)
        });
        // RDMA loses nothing, so it is at level 0 alone.
        let events = EVENTS.iter().filter(|_| level == 0);
        let events = events.filter(|event| !self.events.contains_key(event));
        mishaps
            .map(|(name, mishap)| format!("{name} {mishap:?}"))
            .chain(events.map(|event| format!("{event:?}")))
            .collect()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let title = "PDU";
        writeln!(f, "{title:34}{:>10}{:>10}{:>10}", "lost", "damaged", "overtaken")?;
        for (name, [lost, damaged, overtaken]) in &self.mishaps {
            writeln!(f, "{name:34}{lost:>10}{damaged:>10}{overtaken:>10}")?;
        }
        for (event, count) in &self.events {
            writeln!(f, "{:34}{count:>10}", format!("{event:?}"))?;
        }
        Ok(())
    }
}

const EVENTS: [Event; 2] = [Event::JoinedOverRdma, Event::AbortedByAnother];

const MISHAPS: [Mishap; 3] = [Mishap::Lost, Mishap::Damaged, Mishap::Overtaken];

/// Every type of PDU there is (RFC 7143 §11.2.1.2).
const NAMES: [&str; 18] = [
    "Asynchronous Message",
    "Login Request",
    "Login Response",
    "Logout Request",
    "Logout Response",
    "NOP-In",
    "NOP-Out",
    "R2T",
    "Reject",
    "SCSI Command",
    "SCSI Data-In",
    "SCSI Data-Out",
    "SCSI Response",
    "SNACK Request",
    "Task Management Function Request",
    "Task Management Function Response",
    "Text Request",
    "Text Response",
];
