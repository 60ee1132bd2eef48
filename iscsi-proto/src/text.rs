//! Text negotiation syntax (RFC 7143 §6.1): `key=value` pairs, each ended by a NUL, and the forms of values.
//! Syntax only: what a key means and how it is negotiated is not here.

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
    /// A piece without `=`.
    #[error("{0:?} has no '='")]
    NoEqualSign(String),
    /// A key name that is empty, too long or has a character outside the alphabet.
    #[error("{0:?} is not a key name")]
    KeyName(String),
    /// Not UTF-8.
    #[error("the text is not UTF-8")]
    NotUtf8,
    /// Last piece without a NUL, or a NUL too many.
    #[error("the text does not end with one NUL")]
    NotTerminated,
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

/// Takes the concatenated text of one logical request (all continuation segments) apart.
pub fn parse_pairs(text: &[u8]) -> Result<Vec<KeyValue>, TextError> {
    let _ = text;
    todo!()
}

/// Appends `key=value` and its NUL.
pub fn push_pair(out: &mut Vec<u8>, key: &str, value: &str) {
    let _ = (out, key, value);
    todo!()
}

/// A decimal or hexadecimal constant (§6.1 numerical-value), at most 64 bits.
pub fn parse_number(value: &str) -> Result<u64, ValueError> {
    let _ = value;
    todo!()
}

/// `Yes` or `No`.
pub fn parse_boolean(value: &str) -> Result<bool, ValueError> {
    let _ = value;
    todo!()
}

/// A numeric range `a~b`.
pub fn parse_range(value: &str) -> Result<(u64, u64), ValueError> {
    let _ = value;
    todo!()
}

/// A comma-separated list of values, in order. Never empty elements.
pub fn parse_list(value: &str) -> Result<Vec<&str>, ValueError> {
    let _ = value;
    todo!()
}

/// A hex or base64 constant, refused before decoding when it would exceed `limit` bytes.
pub fn parse_binary(value: &str, limit: usize) -> Result<Vec<u8>, ValueError> {
    let _ = (value, limit);
    todo!()
}

/// The `0x…` form.
#[must_use]
pub fn format_hex(bytes: &[u8]) -> String {
    let _ = bytes;
    todo!()
}

/// The `0b…` form.
#[must_use]
pub fn format_base64(bytes: &[u8]) -> String {
    let _ = bytes;
    todo!()
}
