//! A secret inside an object: goes in, is used, never comes out. Its serde form is nothing at all; only
//! [`SecretText::expose`] shows it, to the state and to the hash.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};
use zeroize::Zeroizing;

/// A secret text, wiped when dropped. Every character counts; nothing is trimmed.
#[derive(Clone, Eq)]
pub struct SecretText(Zeroizing<String>);

impl SecretText {
    /// Any text at all.
    #[must_use]
    pub fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }

    /// The text itself.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl PartialEq for SecretText {
    fn eq(&self, other: &Self) -> bool {
        use subtle::ConstantTimeEq;
        self.0.as_bytes().ct_eq(other.0.as_bytes()).into()
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretText(…)")
    }
}

impl Serialize for SecretText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_none()
    }
}

impl<'de> Deserialize<'de> for SecretText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::new)
    }
}

impl PartialSchema for SecretText {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .write_only(true)
            .description(Some("Write-only: it is never shown."))
            .into()
    }
}

impl ToSchema for SecretText {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_serde_nor_debug_shows_it() {
        let secret = SecretText::new("correct horse battery".into());
        assert_eq!(serde_json::to_string(&secret).unwrap(), "null");
        assert!(!format!("{secret:?}").contains("horse"));
        assert_eq!(secret.expose(), "correct horse battery");
    }

    #[test]
    fn every_printable_byte_goes_through() {
        let all: String = (' '..='~').collect();
        let json = serde_json::to_string(&all).unwrap();
        let secret: SecretText = serde_json::from_str(&json).unwrap();
        assert_eq!(secret.expose(), all);
    }
}
