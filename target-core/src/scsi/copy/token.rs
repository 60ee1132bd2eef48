//! A ROD token as bytes (SPC-4): 512 of them, which hosts hand around and cannot make up. What one stands for
//! is not in it but in the device's table, where its identifier is looked up.

use subtle::ConstantTimeEq;

use super::identification;
use super::limits::{ROD_CHANGE_VULNERABLE, ROD_ZERO};
use crate::scsi::cdb::Cdb;
use crate::scsi::{Failure, LogicalUnit, Sense};

/// The bytes.
#[derive(Clone, Copy)]
pub(crate) struct Token([u8; TOKEN_LEN]);

/// What kind of token initiators send.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum TokenKind {
    /// The well-known one for zeroes.
    Zero,
    /// One like ours, with this COPY MANAGER ROD TOKEN IDENTIFIER.
    Ours([u8; 8]),
}

impl Token {
    /// A token for `bytes` bytes of a unit. `entropy` gives its identifier, and the part that nobody can guess.
    pub(super) fn new(unit: &LogicalUnit, bytes: u64, entropy: fn(&mut [u8])) -> Self {
        let geometry = unit.store().geometry();
        let mut token = [0; TOKEN_LEN];
        token[..4].copy_from_slice(&ROD_CHANGE_VULNERABLE.to_be_bytes());
        token[6..8].copy_from_slice(&LENGTH.to_be_bytes());
        entropy(&mut token[8..16]);
        token[16..48].copy_from_slice(&identification::describe(unit));
        // NUMBER OF BYTES REPRESENTED has sixteen bytes.
        token[56..64].copy_from_slice(&bytes.to_be_bytes());
        // Device type specific data of block devices: the logical block length first.
        token[96..100].copy_from_slice(&geometry.block_size.to_be_bytes());
        entropy(&mut token[SECRET..]);
        Self(token)
    }

    /// Takes the bytes that an initiator sent.
    pub(super) const fn from_bytes(bytes: [u8; TOKEN_LEN]) -> Self {
        Self(bytes)
    }

    /// The bytes.
    pub(super) const fn as_bytes(&self) -> &[u8; TOKEN_LEN] {
        &self.0
    }

    /// What it is, by type and length alone.
    pub(super) fn kind(&self) -> Result<TokenKind, Failure> {
        let fields = Cdb::new(&self.0);
        let kind = match fields.u32_at(0) {
            ROD_ZERO => TokenKind::Zero,
            ROD_CHANGE_VULNERABLE => TokenKind::Ours(fields.u64_at(8).to_be_bytes()),
            _ => return Err(Sense::UNSUPPORTED_TOKEN_TYPE.into()),
        };
        if fields.u16_at(6) != LENGTH {
            return Err(Sense::INVALID_TOKEN_LENGTH.into());
        }
        Ok(kind)
    }

    /// Whether both are the same, in a time that does not tell how much of them is.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

/// What a token is worth is not for logs.
impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

/// Bytes of a token.
pub(super) const TOKEN_LEN: usize = 512;
/// ROD TOKEN LENGTH counts from behind itself.
const LENGTH: u16 = 504;
/// Where the random part begins, behind all that has a meaning.
const SECRET: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scsi::testing::unit;

    fn token() -> Token {
        Token::new(&unit(64), 0x1234, |bytes| bytes.fill(0xa7))
    }

    #[test]
    fn fields_are_where_the_standard_has_them_and_the_rest_is_random() {
        let token = token();
        let bytes = token.as_bytes();
        assert_eq!(bytes[..8], [0x00, 0x80, 0x00, 0x01, 0, 0, 0x01, 0xf8]);
        assert_eq!(bytes[8..16], [0xa7; 8]);
        assert_eq!(bytes[16..24], [0xe4, 0, 0, 0, 1, 3, 0, 16]);
        assert_eq!(
            bytes[48..64],
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x12, 0x34]
        );
        assert_eq!(bytes[96..100], [0, 0, 2, 0]);
        assert_eq!(bytes[128..], [0xa7; 384]);
        assert_eq!(token.kind().unwrap(), TokenKind::Ours([0xa7; 8]));
    }

    #[test]
    fn type_and_length_are_looked_at_in_this_order() {
        let code = |at: usize, value: u8| {
            let mut bytes = *token().as_bytes();
            bytes[at] = value;
            match Token::from_bytes(bytes).kind() {
                Err(Failure::Check(sense)) => sense.code,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(code(3, 0), (0x23, 0x01));
        assert_eq!(code(7, 0xf7), (0x23, 0x0a));
    }

    #[test]
    fn a_token_is_itself_only_when_every_byte_is() {
        let one = token();
        assert!(one.is(&token()));
        for at in [0, 8, 100, 511] {
            let mut bytes = *token().as_bytes();
            bytes[at] ^= 1;
            assert!(!one.is(&Token::from_bytes(bytes)), "{at}");
        }
    }
}
