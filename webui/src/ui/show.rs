//! How values are written for people: sizes, times, addresses of pages.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Bytes with a binary unit: `5 GiB`, `1.5 TiB`, `512 bytes`.
pub(crate) fn bytes(count: u64) -> String {
    let Some((unit, factor)) = UNITS.iter().rev().find(|(_, factor)| count >= *factor) else {
        return format!("{count} bytes");
    };
    let (whole, hundredths) = (
        count / factor,
        u128::from(count % factor) * 100 / u128::from(*factor),
    );
    match (whole, hundredths) {
        (_, 0) => format!("{whole} {unit}"),
        (0..10, _) => format!("{whole}.{hundredths:02} {unit}"),
        (10..100, 10..) => format!("{whole}.{} {unit}", hundredths / 10),
        _ => format!("{whole} {unit}"),
    }
}

/// A size as people write it: `5 GiB`, `500G`, `1.5 TB`, or bytes. Units are binary, as they are on the command line.
///
/// # Errors
/// Says what would be a size.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let bad = || "is no size: write for example 500 MiB, 5 GiB or 1.5 TiB".to_owned();
    let text = text.trim();
    let end = text
        .find(|it: char| !it.is_ascii_digit() && it != '.')
        .unwrap_or(text.len());
    let (number, unit) = (&text[..end], text[end..].trim().to_ascii_lowercase());
    let factor: u64 = match unit.as_str() {
        "" | "b" | "byte" | "bytes" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        "t" | "tb" | "tib" => 1 << 40,
        "p" | "pb" | "pib" => 1 << 50,
        _ => return Err(bad()),
    };
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    if part.len() > 6 || part.contains('.') || (whole.is_empty() && part.is_empty()) {
        return Err(bad());
    }
    let whole: u64 = if whole.is_empty() {
        0
    } else {
        whole.parse().map_err(|_| bad())?
    };
    let scale = 10_u64.pow(u32::try_from(part.len()).expect("six digits at most"));
    let part: u64 = if part.is_empty() {
        0
    } else {
        part.parse().map_err(|_| bad())?
    };
    let total =
        u128::from(whole) * u128::from(factor) + u128::from(part) * u128::from(factor) / u128::from(scale);
    let total = u64::try_from(total).map_err(|_| bad())?;
    // Disks have whole blocks; a fraction seldom ends on one.
    Ok(if factor == 1 { total } else { total / BLOCK * BLOCK })
}

/// A moment, in milliseconds since 1970: `2026-11-30 11:05:41 UTC`.
#[must_use]
pub fn moment(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// How long ago a moment was, in milliseconds since 1970: `just now`, `5 min ago`, `3 days ago`.
pub(crate) fn ago(milliseconds: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let passed = now.saturating_sub(Duration::from_millis(milliseconds)).as_secs();
    if passed < 10 {
        "just now".to_owned()
    } else {
        format!("{} ago", duration(passed))
    }
}

/// A time span: `42 s`, `5 min`, `3 h`, `12 days`.
pub(crate) fn duration(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// A count with its noun: `1 session`, `2 sessions`.
pub(crate) fn count(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// A query without its question mark.
pub(crate) fn query(pairs: &[(&str, &str)]) -> String {
    let pairs = pairs
        .iter()
        .map(|(name, value)| format!("{name}={}", segment(value)));
    pairs.collect::<Vec<_>>().join("&")
}

/// A text as one part of a path, or a value of a query.
pub(crate) fn segment(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~:".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// Year, month and day of a day counted from 1970-01-01, in the Gregorian calendar. Years are taken to begin in March, so
/// that the leap day is the last one.
const fn date(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = era * 400 + year_of_era + if month <= 2 { 1 } else { 0 };
    (year, month, day)
}

const BLOCK: u64 = 4096;
const UNITS: [(&str, u64); 5] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("PiB", 1 << 50),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short_and_never_more_than_there_is() {
        let shown = [
            0,
            511,
            1 << 30,
            5 << 30,
            (3 << 30) / 2,
            1023 << 20,
            (1 << 40) - 1,
            u64::MAX,
        ]
        .map(bytes);
        assert_eq!(
            shown,
            [
                "0 bytes",
                "511 bytes",
                "1 GiB",
                "5 GiB",
                "1.50 GiB",
                "1023 MiB",
                "1023 GiB",
                "16383 PiB"
            ]
        );
    }

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, size) in [
            ("5 GiB", 5 << 30),
            ("5g", 5 << 30),
            ("1.5 TiB", 3 << 39),
            ("500 GB", 500 << 30),
            ("1048576", 1 << 20),
            ("0", 0),
        ] {
            assert_eq!(parse_bytes(text), Ok(size), "{text}");
        }
        for bad in ["", "five", "5 XB", "-1", "1.2.3 G", "99999999999 PiB", "1e9", "."] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn moments_are_of_the_calendar() {
        assert_eq!(moment(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(moment(951_782_400_000), "2000-02-29 00:00:00 UTC");
        assert_eq!(moment(1_796_036_741_999), "2026-11-30 11:05:41 UTC");
        assert_eq!(moment(4_102_444_799_000), "2099-12-31 23:59:59 UTC");
    }

    #[test]
    fn what_goes_into_an_address_is_escaped() {
        assert_eq!(
            segment("iqn.2026-11.org.example:a b/é"),
            "iqn.2026-11.org.example:a%20b%2F%C3%A9"
        );
        assert_eq!(query(&[("next", "/a?b=c&d")]), "next=%2Fa%3Fb%3Dc%26d");
    }
}
