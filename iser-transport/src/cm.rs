//! The private data of a connection request and its answer, as Linux sends them (annex A12 of the InfiniBand
//! specification): one byte of flags, three reserved.

/// What an end says of itself while the connection is made.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CmHeader {
    /// Base offsets are virtual addresses: offsets from zero are not understood.
    pub no_zero_based_addresses: bool,
    /// The end must not be sent SEND with invalidate (initiator), or does not send it (target).
    pub no_remote_invalidate: bool,
}

impl CmHeader {
    /// Length, bytes.
    pub const LEN: usize = 4;

    /// Reads it; `None` when the peer sent none. What follows is padding of the connection manager.
    #[must_use]
    pub fn decode(private_data: &[u8]) -> Option<Self> {
        let header = private_data.first_chunk::<{ Self::LEN }>()?;
        Some(Self {
            no_zero_based_addresses: header[0] & NO_ZERO_BASED_ADDRESSES != 0,
            no_remote_invalidate: header[0] & NO_REMOTE_INVALIDATE != 0,
        })
    }

    /// Writes it.
    #[must_use]
    pub fn encode(self) -> [u8; Self::LEN] {
        let mut flags = 0;
        if self.no_zero_based_addresses {
            flags |= NO_ZERO_BASED_ADDRESSES;
        }
        if self.no_remote_invalidate {
            flags |= NO_REMOTE_INVALIDATE;
        }
        [flags, 0, 0, 0]
    }
}

const NO_ZERO_BASED_ADDRESSES: u8 = 0x80;
const NO_REMOTE_INVALIDATE: u8 = 0x40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_where_linux_has_them() {
        let header = CmHeader {
            no_zero_based_addresses: true,
            no_remote_invalidate: false,
        };
        assert_eq!(header.encode(), [0x80, 0, 0, 0]);
        assert_eq!(CmHeader::decode(&[0x80, 0, 0, 0, 0, 0]), Some(header));
        assert!(CmHeader::decode(&[0x40, 0, 0, 0]).is_some_and(|header| header.no_remote_invalidate));
    }

    #[test]
    fn too_little_is_none() {
        assert_eq!(CmHeader::decode(&[]), None);
        assert_eq!(CmHeader::decode(&[0x80, 0, 0]), None);
    }
}
