//! Who may log in, and how they prove who they are.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use iscsi_proto::IscsiName;
use zeroize::Zeroizing;

use super::{NamePattern, Network};

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
    /// Some initiators have a rule of their own.
    Individual {
        /// Theirs, by name.
        rules: BTreeMap<IscsiName, Self>,
        /// Everybody else's.
        others: Box<Self>,
    },
}

impl ChapPolicy {
    /// The rule for one initiator.
    #[must_use]
    pub fn of(&self, initiator: &IscsiName) -> &Self {
        match self {
            Self::Open | Self::Required { .. } => self,
            Self::Individual { rules, others } => rules
                .get(initiator)
                .unwrap_or_else(|| others.as_ref())
                .of(initiator),
        }
    }
}

/// Which initiators a target admits. Discovery shows a target to exactly those.
#[derive(Clone, Debug)]
pub enum Access {
    /// Everyone who reaches the portal.
    Everyone,
    /// Initiators with these names.
    Initiators(Vec<IscsiName>),
    /// Initiators that one of these rules lets in; nobody when there is none.
    Rules(Vec<AccessRule>),
}

/// One way to be let in: all of its conditions must hold. Without any it is for everyone.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct AccessRule {
    /// What the initiator's name must look like.
    pub pattern: Option<NamePattern>,
    /// Names of which it must be one.
    pub names: Option<Vec<IscsiName>>,
    /// Where it must come from.
    pub network: Option<Network>,
}

impl AccessRule {
    fn admits(&self, initiator: &IscsiName, peer: IpAddr) -> bool {
        self.pattern
            .as_ref()
            .is_none_or(|pattern| pattern.matches(initiator))
            && self.names.as_ref().is_none_or(|names| names.contains(initiator))
            && self.network.is_none_or(|network| network.contains(peer))
    }
}

impl Access {
    /// Whether it lets in everyone who reaches the portal.
    #[must_use]
    pub fn admits_everyone(&self) -> bool {
        match self {
            Self::Everyone => true,
            Self::Initiators(_) => false,
            Self::Rules(rules) => rules.contains(&AccessRule::default()),
        }
    }

    /// The one answer that login and discovery share. `peer` is where the initiator comes from.
    #[must_use]
    pub fn admits(&self, initiator: &IscsiName, peer: IpAddr) -> bool {
        match self {
            Self::Everyone => true,
            Self::Initiators(names) => names.contains(initiator),
            Self::Rules(rules) => rules.iter().any(|rule| rule.admits(initiator, peer)),
        }
    }
}
