//! Who a disk is: identifiers that stay the same across restarts and never coincide, neither between two machines nor
//! between two exports.

use std::collections::HashMap;

use backstores::StoreSource;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The random number of this installation, made once and kept in the state directory.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct InstallationId(pub [u8; 16]);

/// Identifiers of one logical unit.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct UnitIdentity {
    /// NAA locally assigned (SPC-4 §7.8.6.6.4), 8 bytes.
    pub naa: [u8; 8],
    /// Unit serial number.
    pub serial: String,
}

impl UnitIdentity {
    /// An identity that nobody had before and nobody else will have, for units that are saved with it.
    #[must_use]
    pub fn random(entropy: fn(&mut [u8])) -> Self {
        let mut bytes = [0; 18];
        entropy(&mut bytes);
        Self::from_bytes(&bytes)
    }

    fn from_bytes(bytes: &[u8; 18]) -> Self {
        let mut naa = [0; 8];
        naa.copy_from_slice(&bytes[..8]);
        naa[0] = 0x30 | naa[0] & 0x0f;
        let serial = bytes[8..].iter().map(|byte| format!("{byte:02x}")).collect();
        Self { naa, serial }
    }
}

/// Gives identities to the exports of one target, in order.
#[derive(Debug)]
pub struct IdentityMint<'a> {
    installation: InstallationId,
    target: &'a str,
    /// How often each specification came already.
    seen: HashMap<String, u32>,
}

impl<'a> IdentityMint<'a> {
    /// A mint that has given nothing yet.
    #[must_use]
    pub fn new(installation: InstallationId, target: &'a str) -> Self {
        Self {
            installation,
            target,
            seen: HashMap::new(),
        }
    }

    /// The identity of the next export. Options do not change it: a disk that is now read-only is the same disk.
    pub fn next(&mut self, source: &StoreSource) -> UnitIdentity {
        let spec = canonical(source);
        let count = self.seen.entry(spec.clone()).or_default();
        let mut hash = Sha256::new();
        hash.update(b"lunaport unit 1\0");
        hash.update(self.installation.0);
        for part in [self.target, &spec] {
            hash.update(part.as_bytes());
            hash.update([0]);
        }
        hash.update(count.to_be_bytes());
        *count += 1;
        let digest = hash.finalize();
        UnitIdentity::from_bytes(digest[..18].try_into().expect("a digest has 32 bytes"))
    }
}

/// The same file by another path is the same disk.
fn canonical(source: &StoreSource) -> String {
    let resolve = |path: &std::path::Path| {
        std::fs::canonicalize(path)
            .unwrap_or_else(|_| path.to_owned())
            .to_string_lossy()
            .into_owned()
    };
    match source {
        StoreSource::Memory { size } => format!("memory:{size}"),
        StoreSource::Null { size } => format!("null:{size}"),
        StoreSource::File { path, .. } => format!("file:{}", resolve(path)),
        StoreSource::Block { path } => format!("block:{}", path.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMORY: StoreSource = StoreSource::Memory { size: 1 << 20 };

    #[test]
    fn identities_are_stable_and_distinct() {
        let here = InstallationId([1; 16]);
        let mut mint = IdentityMint::new(here, "iqn.2026-11.org.example:a");
        let first = mint.next(&MEMORY);
        let second = mint.next(&MEMORY);
        assert_ne!(first, second, "two equal exports");
        assert_eq!(
            IdentityMint::new(here, "iqn.2026-11.org.example:a").next(&MEMORY),
            first,
            "a restart"
        );
        assert_ne!(
            IdentityMint::new(here, "iqn.2026-11.org.example:b").next(&MEMORY),
            first,
            "another target"
        );
        let there = InstallationId([2; 16]);
        assert_ne!(
            IdentityMint::new(there, "iqn.2026-11.org.example:a").next(&MEMORY),
            first,
            "another machine"
        );
        assert_eq!(first.naa[0] >> 4, 3, "NAA locally assigned");
        assert_eq!(first.serial.len(), 20);
    }
}
