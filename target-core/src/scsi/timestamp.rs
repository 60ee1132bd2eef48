//! The device clock of a logical unit (SPC-4, device clocks): milliseconds that began from the host's time of day, until an
//! initiator sets another. It runs evenly: a correction of the host's clock does not move it.

use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// The clock.
#[derive(Debug)]
pub(crate) struct DeviceClock(Mutex<Reading>);

/// What it said at one moment.
#[derive(Clone, Copy, Debug)]
struct Reading {
    milliseconds: u64,
    origin: Origin,
    at: Instant,
}

/// What initialized the clock last (TIMESTAMP ORIGIN).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub(crate) enum Origin {
    /// SET TIMESTAMP.
    Command = 0b010,
    /// Something else than a command: the host's clock.
    Host = 0b011,
}

impl DeviceClock {
    /// What it says: milliseconds, 48 bits of them, and since what.
    pub(crate) fn now(&self) -> (u64, Origin) {
        let reading = *self.reading();
        let elapsed = u64::try_from(reading.at.elapsed().as_millis()).unwrap_or(u64::MAX);
        (
            reading.milliseconds.wrapping_add(elapsed) & WIDEST,
            reading.origin,
        )
    }

    /// An initiator sets it.
    pub(crate) fn set(&self, milliseconds: u64) {
        *self.reading() = Reading {
            milliseconds,
            origin: Origin::Command,
            at: Instant::now(),
        };
    }

    /// It begins from the host's time of day anew.
    pub(crate) fn reset(&self) {
        *self.reading() = Reading::of_host();
    }

    fn reading(&self) -> std::sync::MutexGuard<'_, Reading> {
        self.0.lock().expect("plain data")
    }
}

impl Default for DeviceClock {
    fn default() -> Self {
        Self(Mutex::new(Reading::of_host()))
    }
}

impl Reading {
    fn of_host() -> Self {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            milliseconds: u64::try_from(since_1970.as_millis()).unwrap_or_default(),
            origin: Origin::Host,
            at: Instant::now(),
        }
    }
}

/// All ones of a TIMESTAMP field.
const WIDEST: u64 = (1 << 48) - 1;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_runs_from_what_was_set_and_wraps() {
        let clock = DeviceClock::default();
        assert_eq!(clock.now().1, Origin::Host);
        clock.set(1000);
        tokio::time::advance(Duration::from_millis(250)).await;
        assert_eq!(clock.now(), (1250, Origin::Command));
        clock.set(WIDEST - 1);
        tokio::time::advance(Duration::from_millis(3)).await;
        assert_eq!(clock.now(), (1, Origin::Command));
        clock.reset();
        assert_eq!(clock.now().1, Origin::Host);
    }

    #[test]
    fn it_begins_with_the_time_of_day() {
        let day = |clock: SystemTime| clock.duration_since(UNIX_EPOCH).unwrap().as_secs() / 86_400;
        let (before, now) = (
            day(SystemTime::now()),
            DeviceClock::default().now().0 / 86_400_000,
        );
        assert!((before..=day(SystemTime::now())).contains(&now), "{now}");
    }
}
