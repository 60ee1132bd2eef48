//! Header and data digests: CRC32C as RFC 7143 §13.1 (and its Appendix A.4 test patterns) define them.

/// A CRC32C being computed over several pieces.
#[derive(Debug)]
pub struct Crc32c(crc_fast::Digest);

impl Default for Crc32c {
    fn default() -> Self {
        Self::new()
    }
}

impl Crc32c {
    /// Starts with nothing.
    #[must_use]
    pub fn new() -> Self {
        Self(crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi))
    }

    /// Adds a piece.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The four bytes as they travel.
    #[must_use]
    pub fn wire_bytes(&self) -> [u8; 4] {
        todo!()
    }
}

/// The digest of one piece, as it travels.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> [u8; 4] {
    let mut crc = Crc32c::new();
    crc.update(bytes);
    crc.wire_bytes()
}
