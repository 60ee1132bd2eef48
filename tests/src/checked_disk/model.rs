//! What block commands do to a disk, said once more and as simply as can be: bytes in a vector, everything at once.
//!
//! It is asked only about commands that ended well, or with MISCOMPARE; whether a command has to be refused, it does not
//! know. A command that it does not know changes nothing.

use std::ops::Range;

/// Bytes of a block.
pub(super) const BLOCK: usize = 512;
/// Blocks of the disk: a few pages of the memory store.
pub(super) const BLOCKS: u64 = 384;

/// The bytes that have to be there.
#[derive(Debug)]
pub(super) struct Model(Vec<u8>);

impl Model {
    pub(super) fn new() -> Self {
        Self(vec![0; len(BLOCKS)])
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// A command ended with GOOD.
    ///
    /// # Panics
    /// When it read something else than there is, or should have found a difference.
    pub(super) fn did(&mut self, cdb: &[u8; 16], out: &[u8], data_in: &[u8]) {
        let Some(range) = bytes_of(cdb) else {
            return self.did_without_range(cdb, out);
        };
        let whole = &out[..whole_blocks(out.len().min(range.len()))];
        match cdb[0] {
            0x08 | 0x28 | 0x88 | 0xa8 => {
                let there = &self.0[range];
                assert!(data_in.len() <= there.len());
                assert!(there.starts_with(data_in), "what was read is not what is there");
            }
            0x0a | 0x2a | 0x8a | 0xaa | 0x2e | 0x8e | 0xae | 0x9c => {
                self.0[range.start..][..whole.len()].copy_from_slice(whole);
            }
            0x8b => {
                let there = &mut self.0[range.start..][..whole.len()];
                there.iter_mut().zip(whole).for_each(|(old, new)| *old |= new);
            }
            0x89 => {
                let (expected, new) = out.split_at(range.len());
                assert!(self.0[range.clone()] == *expected, "a difference was overlooked");
                self.0[range].copy_from_slice(new);
            }
            0x41 | 0x93 => {
                let no_data = cdb[0] == 0x93 && cdb[1] & 1 != 0;
                for block in self.0[range].chunks_exact_mut(BLOCK) {
                    block.copy_from_slice(if no_data { &[0; BLOCK] } else { out });
                }
            }
            0x2f | 0x8f | 0xaf => {
                let difference = self.difference(cdb, out);
                assert_eq!(difference, None, "a difference was overlooked");
            }
            other => unreachable!("{other:#04x} has no range"),
        }
    }

    /// A command ended with MISCOMPARE, and told where.
    ///
    /// # Panics
    /// When there is no difference, or the first one is elsewhere.
    pub(super) fn miscompared(&self, cdb: &[u8; 16], out: &[u8], told: Option<u64>) {
        let found = self.difference(cdb, out).map(|at| at as u64);
        assert!(
            found.is_some() && found == told,
            "{found:?} differs, {told:?} was told"
        );
    }

    fn did_without_range(&mut self, cdb: &[u8; 16], out: &[u8]) {
        match (cdb[0], cdb[1] & 0x1f) {
            (0x04, _) => {
                let header = if cdb[1] & 0x20 == 0 { 4 } else { 8 };
                // FMTDATA, then IP and the type of a pattern that is repeated.
                let has_pattern = cdb[1] & 0x10 != 0 && out[1] & 0x08 != 0 && out[header + 1] == 0x01;
                let pattern = if has_pattern {
                    &out[header + 2..]
                } else {
                    &[0, 1, 0][..]
                };
                self.fill(pattern);
            }
            (0x48, 0x02) => self.0.fill(0),
            // However often it is inverted, the last pass is the pattern.
            (0x48, 0x01) => self.fill(&out[2..]),
            (0x42, _) => {
                let list_len = usize::from(u16::from_be_bytes([cdb[7], cdb[8]])).min(out.len());
                let descriptors = match out.get(2..4) {
                    Some(field) if list_len >= 8 => {
                        &out[8..8 + usize::from(u16::from_be_bytes([field[0], field[1]]))]
                    }
                    _ => &[],
                };
                for descriptor in descriptors.chunks_exact(16) {
                    let blocks = u64::from(number_32(&descriptor[8..]));
                    self.0[span(number_64(descriptor), blocks)].fill(0);
                }
            }
            (0x83, 0x00) if has_list(cdb, out) => self.copied(out, usize::MAX),
            // Without a token of its own the disk has zeroes to write, and nothing else.
            (0x83, 0x11) if has_list(cdb, out) => {
                let len = usize::from(u16::from_be_bytes([out[534], out[535]]));
                for descriptor in out[536..536 + len].chunks_exact(16) {
                    let blocks = u64::from(number_32(&descriptor[8..]));
                    self.0[span(number_64(descriptor), blocks)].fill(0);
                }
            }
            _ => {}
        }
    }

    /// Fills every block with a pattern that stands behind its length of two bytes.
    fn fill(&mut self, pattern: &[u8]) {
        let len = usize::from(u16::from_be_bytes([pattern[0], pattern[1]]));
        for block in self.0.chunks_exact_mut(BLOCK) {
            let pattern = pattern[2..2 + len].iter().cycle();
            block.iter_mut().zip(pattern).for_each(|(byte, new)| *byte = *new);
        }
    }

    /// EXTENDED COPY did as many segments. Whatever units it names, there is but one.
    pub(super) fn copied(&mut self, list: &[u8], done: usize) {
        let units = usize::from(u16::from_be_bytes([list[2], list[3]]));
        let segments = usize::try_from(number_32(&list[8..])).expect("a short list");
        let mut rest = &list[16 + units..16 + units + segments];
        for _ in 0..done {
            let [kind, ..] = rest else { return };
            let offset = |at: usize| usize::from(u16::from_be_bytes([rest[at], rest[at + 1]]));
            let (from, to) = (len(number_64(&rest[12..])), len(number_64(&rest[20..])));
            if *kind == 0x02 {
                self.0.copy_within(from..from + offset(10) * BLOCK, to);
                rest = &rest[28..];
            } else {
                let bytes = usize::try_from(number_32(&rest[8..])).expect("a short segment");
                let from = from + offset(28);
                self.0.copy_within(from..from + bytes, to + offset(30));
                rest = &rest[32..];
            }
        }
    }

    /// Place in Data-Out of the first byte that is not on the disk.
    fn difference(&self, cdb: &[u8; 16], out: &[u8]) -> Option<usize> {
        let range = bytes_of(cdb).expect("commands that compare have a range");
        let there = &self.0[range];
        let first = |a: &[u8], b: &[u8]| a.iter().zip(b).position(|(a, b)| a != b);
        match (cdb[0], cdb[1] >> 1 & 3) {
            (0x89, _) => first(&out[..there.len()], there),
            (_, 1) => first(&out[..whole_blocks(out.len().min(there.len()))], there),
            (_, 3) => there
                .chunks_exact(BLOCK)
                .find_map(|block| first(&out[..BLOCK], block)),
            _ => None,
        }
    }
}

/// Whether a copy command has a parameter list: data that its CDB does not speak of are none.
fn has_list(cdb: &[u8; 16], out: &[u8]) -> bool {
    number_32(&cdb[10..]) != 0 && !out.is_empty()
}

/// Where the blocks of a CDB lie, for commands that have some.
fn bytes_of(cdb: &[u8; 16]) -> Option<Range<usize>> {
    let (ten, twelve) = (u64::from(number_32(&cdb[2..])), u64::from(number_32(&cdb[6..])));
    let (lba, blocks) = match cdb[0] {
        0x08 | 0x0a => {
            let lba = u64::from(number_32(&[0, cdb[1] & 0x1f, cdb[2], cdb[3]]));
            (lba, if cdb[4] == 0 { 256 } else { u64::from(cdb[4]) })
        }
        0x28 | 0x2a | 0x2e | 0x2f | 0x41 => (ten, u64::from(u16::from_be_bytes([cdb[7], cdb[8]]))),
        0xa8 | 0xaa | 0xae | 0xaf => (ten, twelve),
        0x88 | 0x8a | 0x8b | 0x8e | 0x8f | 0x93 => (number_64(&cdb[2..]), u64::from(number_32(&cdb[10..]))),
        0x89 => (number_64(&cdb[2..]), u64::from(cdb[13])),
        0x9c => (
            number_64(&cdb[2..]),
            u64::from(u16::from_be_bytes([cdb[12], cdb[13]])),
        ),
        _ => return None,
    };
    let to_end = blocks == 0 && matches!(cdb[0], 0x41 | 0x93);
    Some(span(lba, if to_end { BLOCKS - lba } else { blocks }))
}

fn span(lba: u64, blocks: u64) -> Range<usize> {
    len(lba)..len(lba + blocks)
}

fn len(blocks: u64) -> usize {
    assert!(blocks <= BLOCKS, "a command beyond the end ended well");
    usize::try_from(blocks).expect("few blocks") * BLOCK
}

fn whole_blocks(bytes: usize) -> usize {
    bytes / BLOCK * BLOCK
}

fn number_32(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(*bytes.first_chunk().expect("a field of four bytes"))
}

fn number_64(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(*bytes.first_chunk().expect("a field of eight bytes"))
}
