//! Texts with a form of their own, as they stand in documents: parsed once, at the edge.

use std::fmt;
use std::str::FromStr;

use iscsi_proto::IscsiName;
use target_core::control::{NamePattern, Network};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

/// What an administrator calls an object: 1 to 63 characters of a-z, 0-9, '-', '_', '.', beginning with a letter or
/// digit.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Id(String);

/// An iSCSI name.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Name(pub IscsiName);

/// A pattern over iSCSI names.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Pattern(pub NamePattern);

/// A network in CIDR notation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Cidr(pub Network);

impl Id {
    /// As it is written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Id {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let first = text
            .bytes()
            .next()
            .is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte);
        if first && text.len() <= ID_MAX && text.bytes().all(allowed) {
            return Ok(Self(text.to_owned()));
        }
        Err(format!(
            "{:?} is no id: it wants 1 to {ID_MAX} characters of a-z, 0-9, '-', '_' and '.', the first a letter or digit",
            text.chars().take(ID_MAX).collect::<String>()
        ))
    }
}

impl FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(Self).map_err(|error: iscsi_proto::NameError| {
            format!("{error}; write for example iqn.2026-11.org.example:name")
        })
    }
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse()
            .map(Self)
            .map_err(|error: target_core::control::MatchError| error.to_string())
    }
}

impl FromStr for Cidr {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse()
            .map(Self)
            .map_err(|error: target_core::control::MatchError| error.to_string())
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

macro_rules! as_text {
    ($($text:ident, $pattern:expr, $example:literal;)*) => {$(
        impl serde::Serialize for $text {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $text {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <String as serde::Deserialize>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }

        impl PartialSchema for $text {
            fn schema() -> RefOr<Schema> {
                let pattern: Option<&str> = $pattern;
                let text = ObjectBuilder::new().schema_type(Type::String).pattern(pattern);
                text.examples([serde_json::json!($example)]).into()
            }
        }

        impl ToSchema for $text {}
    )*};
}

as_text! {
    Id, Some("^[a-z0-9][a-z0-9._-]{0,62}$"), "disk-1";
    Name, None, "iqn.2026-11.org.example:disks";
    Pattern, Some("^[A-Za-z0-9.:_*?-]{1,223}$"), "iqn.2026-11.org.example:*";
    Cidr, None, "192.0.2.0/24";
}

const ID_MAX: usize = 63;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_fit_into_paths_and_keys() {
        for good in ["a", "0", "disk-1", "a.b_c"] {
            assert!(good.parse::<Id>().is_ok(), "{good}");
        }
        for bad in ["", "A", "a/b", "-a", ".", "a b", "é", &"a".repeat(64)] {
            assert!(bad.parse::<Id>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_bad_text_in_a_document_is_told_with_its_fix() {
        let error = serde_json::from_str::<Name>("\"disks\"").unwrap_err().to_string();
        assert!(
            error.contains("\"disks\"") && error.contains("iqn.2026-11.org.example:name"),
            "{error}"
        );
        let error = serde_json::from_str::<Cidr>("\"192.0.2.1/24\"")
            .unwrap_err()
            .to_string();
        assert!(error.contains("192.0.2.0/24"), "{error}");
    }
}
