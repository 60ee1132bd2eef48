//! Words and numbers that several pages write in the same way, and the dashboard's script as well.

use management::model::Role;
use management::rates::{Rates, Sample};

use super::show;

/// A role.
pub(super) const fn role(role: Role) -> &'static str {
    match role {
        Role::Admin => "administrator",
        Role::Operator => "operator",
        Role::Viewer => "viewer",
    }
}

/// A day, from seconds since 1970: `2026-11-30`.
pub(super) fn day(seconds: u64) -> String {
    let moment = show::moment(seconds.saturating_mul(1000));
    moment.split(' ').next().unwrap_or_default().to_owned()
}

/// Rates as a page writes them; a dash where nothing is known.
#[derive(Clone, Debug, Default)]
pub(super) struct Shown(pub(super) Option<Rates>);

impl Shown {
    /// Of a LUN.
    pub(super) fn of_lun(sample: Option<&Sample>, target: &str, lun: u16) -> Self {
        let mut rows = sample.into_iter().flat_map(|sample| &sample.luns);
        Self(
            rows.find(|row| row.target == target && row.lun == lun)
                .map(|row| row.rates.clone()),
        )
    }

    /// Of a session.
    pub(super) fn of_session(sample: Option<&Sample>, tsih: u16) -> Self {
        let mut rows = sample.into_iter().flat_map(|sample| &sample.sessions);
        Self(rows.find(|row| row.tsih == tsih).map(|row| row.rates.clone()))
    }

    pub(super) fn throughput(&self) -> String {
        self.written(|rates| Some(rates.bytes_per_second), &BYTES)
    }

    pub(super) fn iops(&self) -> String {
        self.written(|rates| Some(rates.iops), &OPERATIONS)
    }

    /// The mean latency.
    pub(super) fn latency(&self) -> String {
        self.written(|rates| rates.mean_us, &TIME)
    }

    /// What 99 of 100 commands stay below.
    pub(super) fn slow(&self) -> String {
        self.written(|rates| rates.p99_us, &TIME)
    }

    pub(super) fn in_flight(&self) -> String {
        self.0
            .as_ref()
            .map_or_else(|| DASH.to_owned(), |rates| rates.in_flight.to_string())
    }

    fn written(&self, value: impl Fn(&Rates) -> Option<f64>, units: &[&str]) -> String {
        let value = self.0.as_ref().and_then(value);
        value.map_or_else(|| DASH.to_owned(), |value| scaled(value, units))
    }
}

/// Three digits that count, with the unit that fits.
fn scaled(mut value: f64, units: &[&str]) -> String {
    let mut place = 0;
    while value >= 1000.0 && place + 1 < units.len() {
        value /= 1000.0;
        place += 1;
    }
    let digits = if value >= 99.95 || value == 0.0 {
        0
    } else if value >= 9.995 {
        1
    } else {
        2
    };
    format!("{value:.digits$} {}", units[place]).trim_end().to_owned()
}

const DASH: &str = "–";
const BYTES: [&str; 5] = ["B/s", "kB/s", "MB/s", "GB/s", "TB/s"];
const OPERATIONS: [&str; 3] = ["", "k", "M"];
const TIME: [&str; 3] = ["µs", "ms", "s"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_three_digits_and_their_unit() {
        let shown = [0.0, 1.5, 999.0, 1000.0, 12_345.0, 512_000_000.0].map(|value| scaled(value, &BYTES));
        assert_eq!(
            shown,
            [
                "0 B/s",
                "1.50 B/s",
                "999 B/s",
                "1.00 kB/s",
                "12.3 kB/s",
                "512 MB/s"
            ]
        );
        assert_eq!(scaled(4321.0, &OPERATIONS), "4.32 k");
        assert_eq!(scaled(87.0, &TIME), "87.0 µs");
    }

    #[test]
    fn what_is_not_known_is_a_dash() {
        assert_eq!(Shown::default().latency(), "–");
    }

    #[test]
    fn days_are_of_the_calendar() {
        assert_eq!(day(1_796_036_741), "2026-11-30");
    }
}
