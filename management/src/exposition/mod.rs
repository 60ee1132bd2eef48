//! Metrics in Prometheus' text form (version 0.0.4): the writer, and in the files beside it what the node and the machine
//! have to tell. Knows no HTTP.

mod cores;
mod node;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Duration;

use target_core::metrics::{BOUNDS, HistogramCounts};

pub use cores::{CoreView, Cores};

/// The type of the text, for whoever sends it.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A text as it grows, a family at a time.
#[derive(Debug, Default)]
pub struct Exposition {
    text: String,
    families: BTreeSet<String>,
}

/// A family whose series are written.
#[derive(Debug)]
pub struct Family<'a> {
    name: String,
    text: &'a mut String,
}

/// What a family's series are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FamilyKind {
    /// Counts up.
    Counter,
    /// Goes up and down.
    Gauge,
    /// How long things took, in seconds.
    Histogram,
}

/// Which bounds of a histogram are told: each costs a series.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Detail {
    /// 1, 5, 10, … from 100 µs to 1 s.
    Coarse,
    /// 1, 2, 5, 10, … from 10 µs to 10 s.
    Fine,
}

/// The labels of a series.
pub type Labels<'a> = [(&'a str, &'a str)];

impl Exposition {
    /// Begins a family.
    ///
    /// # Panics
    /// When it is there already: all its series stand in one place.
    pub fn family(&mut self, name: impl Into<String>, kind: FamilyKind, help: &str) -> Family<'_> {
        let name = name.into();
        assert!(self.families.insert(name.clone()), "{name} is written once");
        let kind = match kind {
            FamilyKind::Counter => "counter",
            FamilyKind::Gauge => "gauge",
            FamilyKind::Histogram => "histogram",
        };
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        // Writing to a string does not fail.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        Family {
            name,
            text: &mut self.text,
        }
    }

    /// The program itself.
    pub fn program(&mut self, version: &str, uptime: Duration) {
        self.family("lunaport_info", FamilyKind::Gauge, "The program.")
            .value(&[("version", version)], 1);
        self.family(
            "lunaport_uptime_seconds",
            FamilyKind::Gauge,
            "Seconds since the start.",
        )
        .value(&[], uptime.as_secs());
    }

    /// The whole of it.
    #[must_use]
    pub fn into_text(self) -> String {
        self.text
    }
}

impl Family<'_> {
    /// A whole number.
    pub fn value(&mut self, labels: &Labels<'_>, value: u64) {
        self.line("", labels, None, &value.to_string());
    }

    /// Seconds.
    pub fn seconds(&mut self, labels: &Labels<'_>, nanoseconds: u64) {
        self.line("", labels, None, &seconds(nanoseconds));
    }

    /// Buckets, sum and count.
    pub fn histogram(&mut self, labels: &Labels<'_>, counts: &HistogramCounts, detail: Detail) {
        let mut below = 0;
        for (bound, count) in BOUNDS.iter().zip(counts.counts) {
            below += count;
            if detail.tells(*bound) {
                self.line("_bucket", labels, Some(&seconds(*bound)), &below.to_string());
            }
        }
        let count = counts.count().to_string();
        self.line("_bucket", labels, Some("+Inf"), &count);
        self.line("_sum", labels, None, &seconds(counts.sum));
        self.line("_count", labels, None, &count);
    }

    fn line(&mut self, suffix: &str, labels: &Labels<'_>, bound: Option<&str>, value: &str) {
        self.text.push_str(&self.name);
        self.text.push_str(suffix);
        let bound = bound.map(|bound| ("le", bound));
        let mut before = '{';
        for (label, text) in labels.iter().copied().chain(bound) {
            self.text.push(before);
            before = ',';
            self.text.push_str(label);
            self.text.push_str("=\"");
            for letter in text.chars() {
                match letter {
                    '\\' => self.text.push_str("\\\\"),
                    '"' => self.text.push_str("\\\""),
                    '\n' => self.text.push_str("\\n"),
                    letter => self.text.push(letter),
                }
            }
            self.text.push('"');
        }
        if before == ',' {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }
}

impl Detail {
    fn tells(self, bound: u64) -> bool {
        let (steps, range): (&[u64], _) = match self {
            Self::Coarse => (&[1, 5], 100_000..=1_000_000_000),
            Self::Fine => (&[1, 2, 5], 10_000..=10_000_000_000),
        };
        let decade = 10_u64.pow(bound.ilog10());
        range.contains(&bound) && bound.is_multiple_of(decade) && steps.contains(&(bound / decade))
    }
}

/// Without zeros that say nothing.
fn seconds(nanoseconds: u64) -> String {
    let (whole, rest) = (nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000);
    if rest == 0 {
        return whole.to_string();
    }
    let text = format!("{whole}.{rest:09}");
    text.trim_end_matches('0').to_owned()
}

#[cfg(test)]
mod tests;
