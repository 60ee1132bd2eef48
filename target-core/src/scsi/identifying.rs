//! Identifying information (SPC-4 §5.14): two texts by which people and programs call a unit, kept over restarts.

use std::fmt::Write as _;

/// Which of the texts (IDENTIFYING INFORMATION TYPE).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum InformationKind {
    /// Peripheral device identifying information: any bytes.
    Device,
    /// Peripheral device text identifying information: UTF-8, ended by a zero.
    Text,
}

/// Both of them. An empty one was never set.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Identifying {
    device: Vec<u8>,
    text: Vec<u8>,
}

impl InformationKind {
    /// Both, by their codes.
    pub(crate) const ALL: [Self; 2] = [Self::Device, Self::Text];

    /// The kind of a code.
    pub(crate) const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Device),
            2 => Some(Self::Text),
            _ => None,
        }
    }

    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Device => 0,
            Self::Text => 2,
        }
    }

    /// Most bytes that it may have, as SPC-4 gives them for every device.
    pub(crate) const fn longest(self) -> usize {
        match self {
            Self::Device => 64,
            Self::Text => 256,
        }
    }

    /// The name it is kept by.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Device => "identifying-information",
            Self::Text => "text-identifying-information",
        }
    }
}

impl Identifying {
    /// One of them.
    pub(crate) fn of(&self, kind: InformationKind) -> &[u8] {
        match kind {
            InformationKind::Device => &self.device,
            InformationKind::Text => &self.text,
        }
    }

    pub(crate) fn set(&mut self, kind: InformationKind, value: Vec<u8>) {
        match kind {
            InformationKind::Device => self.device = value,
            InformationKind::Text => self.text = value,
        }
    }
}

/// The form in which it is kept.
pub(crate) fn to_text(value: &[u8]) -> String {
    value.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes everything");
        text
    })
}

/// From the form in which it is kept; `None` for what is none.
pub(crate) fn from_text(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let (pairs, rest) = digits.as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    pairs.iter().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_can_be_taken_back() {
        for value in [&[][..], b"rack 7", &[0, 0xff]] {
            assert_eq!(from_text(&to_text(value)).as_deref(), Some(value));
        }
        assert_eq!(from_text("0"), None);
        assert_eq!(from_text("zz"), None);
        assert_eq!(from_text("é"), None);
    }
}
