//! Who may log in, and how they prove who they are.

use std::fmt;

use iscsi_proto::IscsiName;
use zeroize::Zeroizing;

/// A CHAP secret: opaque bytes, never printed, wiped when dropped.
#[derive(Clone)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Any bytes at all.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// For the hash.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// CHAP name and secret.
#[derive(Clone, Debug)]
pub struct ChapCredential {
    /// CHAP_N.
    pub name: String,
    /// Shared secret.
    pub secret: Secret,
}

/// Whether CHAP is asked of initiators. Policy decides, not the presence of secrets.
#[derive(Clone, Debug, Default)]
pub enum ChapPolicy {
    /// AuthMethod=None is chosen when offered; an initiator that offers only CHAP cannot be served.
    #[default]
    Open,
    /// CHAP is required.
    Required {
        /// Any of these lets an initiator in.
        accepted: Vec<ChapCredential>,
        /// What we prove ourselves with when the initiator asks (mutual CHAP).
        own: Option<ChapCredential>,
    },
}

/// Which initiators a target admits. Discovery shows a target to exactly those.
#[derive(Clone, Debug)]
pub enum Access {
    /// Everyone who reaches the portal.
    Everyone,
    /// Initiators with these names.
    Initiators(Vec<IscsiName>),
}

impl Access {
    /// The one answer that login and discovery share.
    #[must_use]
    pub fn admits(&self, initiator: &IscsiName) -> bool {
        match self {
            Self::Everyone => true,
            Self::Initiators(names) => names.contains(initiator),
        }
    }
}
