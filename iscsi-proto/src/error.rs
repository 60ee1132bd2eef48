//! Why bytes are not a PDU.

/// A header that cannot be understood. Each variant names the field and what was in it.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum DecodeError {
    /// Opcode that no initiator (or no target) may send.
    #[error("opcode {0:#04x} is not one we may receive")]
    Opcode(u8),
    /// A field holds a value that RFC 7143 reserves or forbids.
    #[error("{pdu}: {field} is {value:#x}")]
    Field {
        /// PDU, as RFC 7143 names it.
        pdu: &'static str,
        /// Field, as RFC 7143 names it.
        field: &'static str,
        /// What it held.
        value: u32,
    },
    /// An additional header segment is malformed.
    #[error("additional header segment: {0}")]
    Ahs(&'static str),
}

impl DecodeError {
    pub(crate) const fn field(pdu: &'static str, field: &'static str, value: u32) -> Self {
        Self::Field { pdu, field, value }
    }
}
