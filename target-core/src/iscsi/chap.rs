//! CHAP (RFC 7143 §12.1) as arithmetic: algorithms, challenges, responses. Which key comes when is `authenticate.rs`.

use iscsi_proto::text::{parse_list, parse_number};
use md5::{Digest, Md5};
use sha1::Sha1;
use sha2::Sha256;
use sha3::Sha3_256;
use subtle::ConstantTimeEq;

use crate::control::Secret;

/// Hash of a CHAP exchange, by IANA's numbers for PPP authentication algorithms.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Algorithm {
    /// 5
    Md5,
    /// 6
    Sha1,
    /// 7
    Sha256,
    /// 8
    Sha3,
}

/// A challenge that waits for its response.
#[derive(Debug)]
pub(super) struct Challenge {
    pub(super) algorithm: Algorithm,
    /// CHAP_I.
    pub(super) identifier: u8,
    /// CHAP_C.
    pub(super) bytes: Vec<u8>,
}

impl Algorithm {
    /// The strongest one in a CHAP_A list; `None` when we know none of them.
    pub(super) fn strongest_of(list: &str) -> Option<Self> {
        let offered: Vec<u64> = parse_list(list)
            .ok()?
            .into_iter()
            .filter_map(|number| parse_number(number).ok())
            .collect();
        STRONGEST_FIRST
            .into_iter()
            .find(|algorithm| offered.contains(&u64::from(algorithm.number())))
    }

    /// CHAP_A.
    pub(super) const fn number(self) -> u8 {
        match self {
            Self::Md5 => 5,
            Self::Sha1 => 6,
            Self::Sha256 => 7,
            Self::Sha3 => 8,
        }
    }

    /// Length of a response, bytes.
    pub(super) const fn digest_len(self) -> usize {
        match self {
            Self::Md5 => 16,
            Self::Sha1 => 20,
            Self::Sha256 | Self::Sha3 => 32,
        }
    }

    /// RFC 1994 §4.1: the hash over identifier, secret and challenge.
    pub(super) fn response(self, identifier: u8, secret: &Secret, challenge: &[u8]) -> Vec<u8> {
        match self {
            Self::Md5 => digest::<Md5>(identifier, secret, challenge),
            Self::Sha1 => digest::<Sha1>(identifier, secret, challenge),
            Self::Sha256 => digest::<Sha256>(identifier, secret, challenge),
            Self::Sha3 => digest::<Sha3_256>(identifier, secret, challenge),
        }
    }
}

impl Challenge {
    /// A fresh one, as long as the algorithm's digest: 16 to 32 bytes, which even small initiators hold.
    pub(super) fn new(algorithm: Algorithm, entropy: fn(&mut [u8])) -> Self {
        let mut identifier = [0];
        entropy(&mut identifier);
        let mut bytes = vec![0; algorithm.digest_len()];
        entropy(&mut bytes);
        Self {
            algorithm,
            identifier: identifier[0],
            bytes,
        }
    }

    /// Whether `response` proves knowledge of `secret`. Takes the same time wherever they differ.
    pub(super) fn is_answered_by(&self, response: &[u8], secret: &Secret) -> bool {
        let expected = self.algorithm.response(self.identifier, secret, &self.bytes);
        expected.ct_eq(response).into()
    }
}

fn digest<D: Digest>(identifier: u8, secret: &Secret, challenge: &[u8]) -> Vec<u8> {
    D::new()
        .chain_update([identifier])
        .chain_update(secret.expose())
        .chain_update(challenge)
        .finalize()
        .to_vec()
}

const STRONGEST_FIRST: [Algorithm; 4] = [
    Algorithm::Sha3,
    Algorithm::Sha256,
    Algorithm::Sha1,
    Algorithm::Md5,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_strongest_known_algorithm_is_taken_whatever_the_order() {
        for (list, number) in [
            ("5", Some(5)),
            ("7,5", Some(7)),
            ("5,7", Some(7)),
            ("6,5", Some(6)),
            ("5,6,7,8", Some(8)),
            ("9,5", Some(5)),
            ("57", None),
            ("9", None),
            ("", None),
            ("5,", None),
        ] {
            assert_eq!(
                Algorithm::strongest_of(list).map(Algorithm::number),
                number,
                "{list}"
            );
        }
    }

    #[test]
    fn response_is_the_hash_of_identifier_secret_and_challenge() {
        let secret = Secret::new(b"hunter2hunter2".to_vec());
        // printf '\x01hunter2hunter2\xaa\xbb' | md5sum (sha1sum, sha256sum, openssl sha3-256)
        for (algorithm, expected) in [
            (Algorithm::Md5, MD5_VECTOR),
            (Algorithm::Sha1, SHA1_VECTOR),
            (Algorithm::Sha256, SHA256_VECTOR),
            (Algorithm::Sha3, SHA3_VECTOR),
        ] {
            let response = algorithm.response(1, &secret, &[0xaa, 0xbb]);
            assert_eq!(response.len(), algorithm.digest_len());
            assert_eq!(iscsi_proto::text::format_hex(&response), expected);
        }
    }

    #[test]
    fn a_response_of_another_length_is_wrong() {
        let challenge = Challenge::new(Algorithm::Md5, |bytes| bytes.fill(7));
        let secret = Secret::new(b"s".to_vec());
        let right = Algorithm::Md5.response(7, &secret, &[7; 16]);
        assert!(challenge.is_answered_by(&right, &secret));
        assert!(!challenge.is_answered_by(&right[..15], &secret));
        assert!(!challenge.is_answered_by(&[], &secret));
    }

    const MD5_VECTOR: &str = "0x74635b250a264943a3c25291e8c13527";
    const SHA1_VECTOR: &str = "0x683001d82f8267c71a768d763556d1032fcd49cb";
    const SHA256_VECTOR: &str = "0xac86ed24fb3637cb13c0995deaae9bb63d80bff4cfdb97d4a7612b29a8d54ae8";
    const SHA3_VECTOR: &str = "0x1cf89b0b391ee85b852eb08680c85a497df556fbd572a02feda96cd7235e9d05";
}
