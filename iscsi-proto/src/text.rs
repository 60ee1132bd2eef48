//! Text negotiation syntax (RFC 7143 §6.1): `key=value` pairs, each ended by a NUL, and the forms of values.
//! Syntax only: what a key means and how it is negotiated is not here.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use nom::branch::alt;
use nom::bytes::complete::{tag, tag_no_case};
use nom::character::complete::{digit1, hex_digit1};
use nom::combinator::{all_consuming, map_res, verify};
use nom::sequence::{preceded, separated_pair};
use nom::{IResult, Parser};

/// One `key=value`. Keys are at most 63 bytes of the standard-label alphabet; values hold no NUL.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KeyValue {
    /// Left of the first `=`.
    pub key: String,
    /// Right of it.
    pub value: String,
}

/// Text that cannot be taken apart.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum TextError {
    /// A piece without `=`, cut to a printable length.
    #[error("{0:?} has no '='")]
    NoEqualSign(String),
    /// A key name that is empty, too long or has a character outside the alphabet. Cut to a printable length.
    #[error("{0:?} is not a key name")]
    KeyName(String),
    /// Not UTF-8.
    #[error("the text is not UTF-8")]
    NotUtf8,
    /// Last piece without a NUL, or a NUL too many.
    #[error("the text does not end with one NUL")]
    NotTerminated,
    /// More than [`MAX_VALUE_LEN`] bytes in the value of the key named.
    #[error("the value of {0} is too long")]
    ValueTooLong(String),
}

/// A binary value (`0x…`, `0b…` base64, or a decimal of at most 64 bits) that cannot be read, or a number out of form.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{value:?} is not {wanted}")]
pub struct ValueError {
    /// The value as given, cut to a printable length.
    pub value: String,
    /// The form wanted, such as "a number".
    pub wanted: &'static str,
}

/// Longest key name, bytes (§6.1).
pub const MAX_KEY_LEN: usize = 63;

/// Longest value taken, bytes: as much text as every iSCSI node must be able to receive (§6.2).
pub const MAX_VALUE_LEN: usize = 8192;

/// Takes the concatenated text of one logical request (all continuation segments) apart.
pub fn parse_pairs(text: &[u8]) -> Result<Vec<KeyValue>, TextError> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let Some(text) = text.strip_suffix(&[0]) else {
        return Err(TextError::NotTerminated);
    };
    text.split(|byte| *byte == 0).map(parse_pair).collect()
}

fn parse_pair(pair: &[u8]) -> Result<KeyValue, TextError> {
    if pair.is_empty() {
        return Err(TextError::NotTerminated);
    }
    let pair = str::from_utf8(pair).map_err(|_| TextError::NotUtf8)?;
    let Some((key, value)) = pair.split_once('=') else {
        return Err(TextError::NoEqualSign(excerpt(pair)));
    };
    if key.is_empty() || key.len() > MAX_KEY_LEN || !key.bytes().all(is_key_byte) {
        return Err(TextError::KeyName(excerpt(key)));
    }
    if value.len() > MAX_VALUE_LEN {
        return Err(TextError::ValueTooLong(key.to_owned()));
    }
    Ok(KeyValue {
        key: key.to_owned(),
        value: value.to_owned(),
    })
}

/// Appends `key=value` and its NUL.
pub fn push_pair(out: &mut Vec<u8>, key: &str, value: &str) {
    debug_assert!(
        !key.contains(['=', '\0']) && !value.contains('\0'),
        "{key}={value:?}"
    );
    out.extend_from_slice(key.as_bytes());
    out.push(b'=');
    out.extend_from_slice(value.as_bytes());
    out.push(0);
}

/// One data segment's worth of a text.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TextSegment<'a> {
    /// At most as many bytes as the receiver takes. A pair may be cut anywhere (§6.1).
    pub bytes: &'a [u8],
    /// C bit: more follows.
    pub continues: bool,
}

/// Cuts a text into segments of at most `max_len` bytes (taken as 1 if 0). A text without bytes is one segment.
pub fn segments(text: &[u8], max_len: usize) -> impl Iterator<Item = TextSegment<'_>> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest.take()?;
        let (bytes, after) = text.split_at(text.len().min(max_len.max(1)));
        rest = Some(after).filter(|after| !after.is_empty());
        Some(TextSegment {
            bytes,
            continues: rest.is_some(),
        })
    })
}

/// A decimal or hexadecimal constant (§6.1 numerical-value), at most 64 bits.
pub fn parse_number(value: &str) -> Result<u64, ValueError> {
    complete(number, value, "a number")
}

/// `Yes` or `No`.
pub fn parse_boolean(value: &str) -> Result<bool, ValueError> {
    match value {
        "Yes" => Ok(true),
        "No" => Ok(false),
        _ => Err(refused(value, "Yes or No")),
    }
}

/// A numeric range `a~b`, with `a` at most `b`.
pub fn parse_range(value: &str) -> Result<(u64, u64), ValueError> {
    let range = verify(separated_pair(number, tag("~"), number), |(low, high)| {
        low <= high
    });
    complete(range, value, "a range")
}

/// A comma-separated list of values, in order. Never empty elements.
pub fn parse_list(value: &str) -> Result<Vec<&str>, ValueError> {
    let elements: Vec<_> = value.split(',').collect();
    match elements.contains(&"") {
        true => Err(refused(value, "a list")),
        false => Ok(elements),
    }
}

/// A hex or base64 constant, refused before decoding when it would exceed `limit` bytes. A decimal constant is taken
/// as the shortest bytes that hold it.
pub fn parse_binary(value: &str, limit: usize) -> Result<Vec<u8>, ValueError> {
    let too_long = || refused(value, "short enough");
    let bytes = match value.as_bytes() {
        [b'0', b'x' | b'X', ..] => {
            let digits = &value[2..];
            // Each digit is half a byte; an odd one out is the low half of the first (§6.1 hex-constant).
            if digits.len().div_ceil(2) > limit {
                return Err(too_long());
            }
            decode_hex(digits)
        }
        [b'0', b'b' | b'B', ..] => {
            let digits = &value[2..];
            let padding = digits.bytes().rev().take_while(|byte| *byte == b'=').count();
            if (digits.len() - padding) * 3 / 4 > limit {
                return Err(too_long());
            }
            BASE64.decode(digits).ok().filter(|bytes| !bytes.is_empty())
        }
        _ => decimal(value)
            .ok()
            .filter(|(rest, _)| rest.is_empty())
            .map(|(_, number)| shortest_bytes(number)),
    };
    let bytes = bytes.ok_or_else(|| refused(value, "a binary value"))?;
    if bytes.len() > limit {
        Err(too_long())
    } else {
        Ok(bytes)
    }
}

/// The `0x…` form.
#[must_use]
pub fn format_hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
    let digits = digits.map(|digit| char::from(HEX_DIGITS[usize::from(digit)]));
    ['0', 'x'].into_iter().chain(digits).collect()
}

/// The `0b…` form.
#[must_use]
pub fn format_base64(bytes: &[u8]) -> String {
    format!("0b{}", BASE64.encode(bytes))
}

fn number(input: &str) -> IResult<&str, u64> {
    let hex = map_res(hex_digit1, |digits| u64::from_str_radix(digits, 16));
    alt((preceded(tag_no_case("0x"), hex), decimal)).parse(input)
}

/// No leading zeroes (§6.1 decimal-constant).
fn decimal(input: &str) -> IResult<&str, u64> {
    let digits = verify(digit1, |digits: &str| digits == "0" || !digits.starts_with('0'));
    map_res(digits, str::parse).parse(input)
}

/// Runs a parser over the whole value.
fn complete<'a, O>(
    parser: impl Parser<&'a str, Output = O, Error = nom::error::Error<&'a str>>,
    value: &'a str,
    wanted: &'static str,
) -> Result<O, ValueError> {
    match all_consuming(parser).parse(value) {
        Ok((_, output)) => Ok(output),
        Err(_) => Err(refused(value, wanted)),
    }
}

fn decode_hex(digits: &str) -> Option<Vec<u8>> {
    if digits.is_empty() {
        return None;
    }
    let nibbles: Vec<u8> = digits.chars().map(hex_nibble).collect::<Option<_>>()?;
    // Pairs are formed from the end.
    let mut bytes: Vec<u8> = nibbles
        .rchunks(2)
        .map(|pair| match pair {
            [high, low] => high << 4 | low,
            lone => lone[0],
        })
        .collect();
    bytes.reverse();
    Some(bytes)
}

fn hex_nibble(digit: char) -> Option<u8> {
    digit.to_digit(16).and_then(|nibble| u8::try_from(nibble).ok())
}

fn shortest_bytes(number: u64) -> Vec<u8> {
    let bytes = number.to_be_bytes();
    let zeroes = bytes.iter().take_while(|byte| **byte == 0).count();
    bytes[zeroes.min(bytes.len() - 1)..].to_vec()
}

/// The alphabet of key names: a standard-label, and the `#` of public extensions (`X#…`). A capital at the front is
/// not asked for, since `iSCSIProtocolLevel` has none.
const fn is_key_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'+' | b'@' | b'_' | b'#')
}

fn refused(value: &str, wanted: &'static str) -> ValueError {
    ValueError {
        value: excerpt(value),
        wanted,
    }
}

/// Enough of a text to recognise it in a log.
fn excerpt(text: &str) -> String {
    text.chars().take(EXCERPT_CHARS).collect()
}

const EXCERPT_CHARS: usize = 64;
const HEX_DIGITS: &[u8; 16] = b"0123456789abcdef";

#[cfg(test)]
mod tests;
