//! What is logged, changed while the program runs. The log itself is the program's: it says how its filter is changed.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::json;
use tracing::info;

use super::Control;
use crate::access::Actor;
use crate::diff::{Action, Difference};
use crate::events::{Event, EventKind};
use crate::model::Problem;

/// The filter of the log; until somebody attaches one there is none.
#[derive(Debug, Default)]
pub struct LogFilter(Mutex<Option<Attached>>);

struct Attached {
    current: String,
    apply: Box<Apply>,
}

/// Puts a filter into force, or says what is wrong with it.
type Apply = dyn Fn(&str) -> Result<(), String> + Send + Sync;

impl LogFilter {
    /// Says what the filter is, and how it is changed.
    pub fn attach(
        &self,
        current: String,
        apply: impl Fn(&str) -> Result<(), String> + Send + Sync + 'static,
    ) {
        let apply = Box::new(apply);
        *self.attached() = Some(Attached { current, apply });
    }

    /// The filter in force.
    #[must_use]
    pub fn current(&self) -> Option<String> {
        self.attached().as_ref().map(|attached| attached.current.clone())
    }

    /// Another one. Returns what it was.
    fn change(&self, filter: &str) -> Result<String, String> {
        let mut attached = self.attached();
        let attached = attached.as_mut().ok_or("this log has no filter")?;
        (attached.apply)(filter)?;
        Ok(std::mem::replace(&mut attached.current, filter.to_owned()))
    }

    fn attached(&self) -> MutexGuard<'_, Option<Attached>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Control {
    /// What is logged.
    #[must_use]
    pub const fn log_filter(&self) -> &LogFilter {
        &self.log_filter
    }

    /// Changes what is logged, until the program ends; who did it is in the audit log.
    ///
    /// # Errors
    /// It is no filter.
    pub fn set_log_filter(&self, actor: &Actor, filter: &str) -> Result<(), Problem> {
        let wrong = |problem: String| {
            let fix = "write error, warn, info, debug, trace or a filter such as info,target_core=debug";
            Problem::new("filter", problem, fix)
        };
        if filter.len() > FILTER_MAX {
            return Err(wrong(format!("longer than {FILTER_MAX} bytes")));
        }
        let before = self.log_filter.change(filter).map_err(wrong)?;
        info!(filter, %actor, "what is logged was changed");
        let difference = Difference {
            path: "log-filter".to_owned(),
            action: Action::Change,
            before: Some(json!({"filter": before})),
            after: Some(json!({"filter": filter})),
        };
        let data = json!({
            "generation": self.model().generation,
            "objects": 1,
            "differences": [difference],
        });
        self.events.record(
            Event::new(EventKind::Changed, "changed log-filter")
                .by(actor)
                .with(data),
        );
        Ok(())
    }
}

impl fmt::Debug for Attached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Attached({:?})", self.current)
    }
}

/// A filter for every module there is.
const FILTER_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_is_none_changes_nothing() {
        let filter = LogFilter::default();
        assert_eq!(filter.current(), None);
        assert!(filter.change("info").is_err());
        filter.attach("info".to_owned(), |text| match text {
            "wrong" => Err("no filter".to_owned()),
            _ => Ok(()),
        });
        assert_eq!(filter.change("debug"), Ok("info".to_owned()));
        assert_eq!(filter.change("wrong"), Err("no filter".to_owned()));
        assert_eq!(filter.current(), Some("debug".to_owned()));
    }
}
