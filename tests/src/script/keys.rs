//! What an initiator says in a login.

use iscsi_proto::text::push_pair;

use super::{INITIATOR, TARGET};

/// Keys and values in the order they are sent.
#[derive(Clone, Debug, Default)]
pub struct Keys(Vec<(String, String)>);

impl Keys {
    /// None at all.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Names, and what a modest initiator asks for.
    #[must_use]
    pub fn normal() -> Self {
        Self::none()
            .with("InitiatorName", INITIATOR)
            .with("TargetName", TARGET)
            .with("SessionType", "Normal")
            .with("MaxRecvDataSegmentLength", "65536")
    }

    /// For a discovery session.
    #[must_use]
    pub fn discovery() -> Self {
        Self::none()
            .with("InitiatorName", INITIATOR)
            .with("SessionType", "Discovery")
    }

    /// With this key, in the place of an earlier one of the same name.
    #[must_use]
    pub fn with(mut self, key: &str, value: &str) -> Self {
        match self.0.iter_mut().find(|(known, _)| known == key) {
            Some(pair) => pair.1 = value.into(),
            None => self.0.push((key.into(), value.into())),
        }
        self
    }

    /// Without this key.
    #[must_use]
    pub fn without(mut self, key: &str) -> Self {
        self.0.retain(|(known, _)| known != key);
        self
    }

    /// As they travel.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut text = Vec::new();
        for (key, value) in &self.0 {
            push_pair(&mut text, key, value);
        }
        text
    }
}

impl<const N: usize> From<[(&str, &str); N]> for Keys {
    fn from(pairs: [(&str, &str); N]) -> Self {
        Self(
            pairs
                .iter()
                .map(|(key, value)| ((*key).into(), (*value).into()))
                .collect(),
        )
    }
}
