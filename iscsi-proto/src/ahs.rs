//! Additional header segments (§11.2.2): extended CDBs and the read length of bidirectional commands.

use bytes::Bytes;

use crate::DecodeError;

/// The additional header segments of one SCSI Command, decoded.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Ahs {
    /// CDB bytes after the first sixteen (§11.2.2.3).
    pub extended_cdb: Bytes,
    /// Bidirectional Read Expected Data Transfer Length (§11.2.2.4).
    pub bidi_read_len: Option<u32>,
}

impl Ahs {
    /// Reads all segments. Unknown types, lengths that leave the area, repeated segments are errors.
    pub fn decode(_area: &[u8]) -> Result<Self, DecodeError> {
        todo!()
    }

    /// Writes the segments, padded.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        todo!()
    }
}
