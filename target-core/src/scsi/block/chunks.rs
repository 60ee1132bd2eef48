//! Cuts a run of bytes on the medium into pieces of whole blocks: chunks, which a buffer can hold, and strides, which
//! need none.

use std::ops::Range;

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

/// The pieces of `len` bytes at `at` for operations without a buffer: short enough that a store has done one soon, so that
/// a command can be aborted in between. They are cut at multiples of [`STRIDE`], so that no granule of a store is.
pub(crate) fn strides(at: u64, len: u64) -> impl Iterator<Item = Range<u64>> {
    let end = at.saturating_add(len);
    let numbers = at / STRIDE..end.div_ceil(STRIDE);
    numbers
        .map(move |number| at.max(number * STRIDE)..end.min((number + 1).saturating_mul(STRIDE)))
        .filter(|stride| !stride.is_empty())
}

/// Between two pieces everybody else on the same core has a turn: a store in memory never makes a command wait, so that a
/// long one would hold all others up.
pub(crate) async fn turn(between_two: bool) {
    if between_two {
        tokio::task::yield_now().await;
    }
}

/// Bytes of a stride.
const STRIDE: u64 = 16 << 20;

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

    #[test]
    fn strides_cover_the_run_too_and_end_where_granules_do() {
        let cut = |at, len| {
            strides(at, len)
                .map(|stride| (stride.start, stride.end))
                .collect::<Vec<_>>()
        };
        assert_eq!(cut(512, 0), []);
        assert_eq!(cut(0, 0), []);
        assert_eq!(cut(512, 0xff_fe00), [(512, 0x100_0000)]);
        assert_eq!(
            cut(512, 0x200_0000),
            [
                (512, 0x100_0000),
                (0x100_0000, 0x200_0000),
                (0x200_0000, 0x200_0200)
            ]
        );
    }
}
