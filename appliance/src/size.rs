//! Sizes as people write them: `4096`, `512K`, `10G`, `2TiB`. Units are binary, numbers whole.

use nom::branch::alt;
use nom::bytes::complete::tag;
use nom::character::complete::{digit1, one_of};
use nom::combinator::{all_consuming, map_res, opt};
use nom::sequence::{pair, terminated};
use nom::{IResult, Parser};

/// Bytes. `None` when the text is no size or does not fit 64 bits.
pub(crate) fn parse_size(text: &str) -> Option<u64> {
    let (_, (number, unit)) = all_consuming(pair(number, unit)).parse(text).ok()?;
    number.checked_mul(unit)
}

/// The shortest exact way to write a number of bytes.
pub(crate) fn format_size(bytes: u64) -> String {
    for (shift, name) in [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if bytes >= 1 << shift && bytes.trailing_zeros() >= shift {
            return format!("{} {name}", bytes >> shift);
        }
    }
    format!("{bytes} bytes")
}

fn number(text: &str) -> IResult<&str, u64> {
    map_res(digit1, str::parse).parse(text)
}

fn unit(text: &str) -> IResult<&str, u64> {
    let (rest, letter) = opt(terminated(one_of("KkMmGgTt"), opt(alt((tag("iB"), tag("B")))))).parse(text)?;
    let shift = match letter.map(|letter| letter.to_ascii_uppercase()) {
        Some('K') => 10,
        Some('M') => 20,
        Some('G') => 30,
        Some('T') => 40,
        _ => 0,
    };
    Ok((rest, 1 << shift))
}

#[cfg(test)]
mod tests {
    use super::{format_size, parse_size};

    #[test]
    fn binary_units_are_understood_and_nothing_else() {
        for (text, bytes) in [
            ("0", Some(0)),
            ("4096", Some(4096)),
            ("512K", Some(524_288)),
            ("256M", Some(268_435_456)),
            ("1G", Some(1 << 30)),
            ("1g", Some(1 << 30)),
            ("10GiB", Some(10 << 30)),
            ("2T", Some(2 << 40)),
            ("", None),
            ("G", None),
            ("1.5G", None),
            ("-1", None),
            ("1 G", None),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("20000000T", None),
        ] {
            assert_eq!(parse_size(text), bytes, "{text}");
        }
    }

    #[test]
    fn sizes_are_written_exactly() {
        assert_eq!(format_size(1 << 30), "1 GiB");
        assert_eq!(format_size(1536 << 20), "1536 MiB");
        assert_eq!(format_size(1000), "1000 bytes");
    }
}
