//! Cuts a run of bytes on the medium into pieces of at most [`CHUNK`], each of whole blocks.

use backstores::CHUNK;

/// One piece.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Chunk {
    /// Place on the medium, bytes.
    pub(crate) at: u64,
    /// Bytes.
    pub(crate) len: usize,
}

/// The pieces of `len` bytes at `at`. Both are multiples of the block size, and so is every piece.
pub(crate) fn chunks(at: u64, len: u64) -> impl Iterator<Item = Chunk> {
    (0..len).step_by(CHUNK).map(move |done| Chunk {
        at: at + done,
        len: usize::try_from(len - done).map_or(CHUNK, |rest| rest.min(CHUNK)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_the_run_without_gap_or_overlap() {
        let cut = |at, len| {
            chunks(at, len)
                .map(|chunk| (chunk.at, chunk.len))
                .collect::<Vec<_>>()
        };
        assert_eq!(cut(512, 0), []);
        assert_eq!(cut(512, 512), [(512, 512)]);
        assert_eq!(cut(512, 0x4_0000), [(512, 0x4_0000)]);
        assert_eq!(
            cut(512, 0x8_0200),
            [(512, 0x4_0000), (0x4_0200, 0x4_0000), (0x8_0200, 512)]
        );
    }
}
