//! iSCSI names: iqn., eui. and naa. forms (RFC 7143 §4.2.7), compared case-folded.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// A well-formed iSCSI name in lower case, at most 223 bytes. Cheap to clone.
#[derive(Clone, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct IscsiName(Arc<str>);

/// What is wrong with a name, for people.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("iSCSI name {name:?}: {problem}")]
pub struct NameError {
    /// The name as given, cut to a printable length.
    pub name: String,
    /// What is wrong.
    pub problem: &'static str,
}

impl IscsiName {
    /// The name as it is written and compared.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for IscsiName {
    type Err = NameError;

    fn from_str(name: &str) -> Result<Self, NameError> {
        let _ = name;
        todo!()
    }
}

impl fmt::Debug for IscsiName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for IscsiName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
