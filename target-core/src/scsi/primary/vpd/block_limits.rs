//! Block Limits (B0h, SBC-4 §6.6.4). The limits told here are the ones that the commands enforce.

use backstores::{Abilities, CHUNK, Geometry, TAGS_LEN};

use super::Subject;
use super::provisioning::is_thin;

/// Most blocks that one UNMAP may name in all its descriptors.
pub(crate) const MAXIMUM_UNMAP_BLOCKS: u32 = 0x10_0000;

/// Most descriptors of one UNMAP. A small number: some initiators keep it in a signed integer.
pub(crate) const MAXIMUM_UNMAP_DESCRIPTORS: u32 = 256;

/// Most blocks that one WRITE SAME may write: half a gibibyte, so that a slow medium needs seconds, not minutes.
pub(crate) const fn maximum_write_same_blocks(geometry: &Geometry) -> u32 {
    MAXIMUM_WRITE_SAME_BYTES / geometry.block_size
}

/// Most blocks that one COMPARE AND WRITE may name: those that fit its field, and whose Data-Out, twice as many, fits one
/// buffer, with the tags of those that have some.
pub(crate) fn maximum_compare_and_write_blocks(geometry: &Geometry, abilities: Abilities) -> u8 {
    let tags = if abilities.protection { TAGS_LEN } else { 0 };
    u8::try_from(CHUNK / 2 / (geometry.block_size as usize + tags)).unwrap_or(u8::MAX)
}

/// What one WRITE ATOMIC may write, in blocks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct AtomicLimits {
    /// Most blocks; 0 where it is not offered.
    pub(crate) most: u32,
    /// What its first block and its length must be multiples of: a physical block is not rewritten in part.
    pub(crate) granularity: u32,
}

impl AtomicLimits {
    /// The limits of a store.
    pub(crate) const fn new(geometry: &Geometry, abilities: Abilities) -> Self {
        let granularity = geometry.physical_block_size / geometry.block_size;
        let blocks = abilities.atomic_len / geometry.block_size;
        Self {
            most: blocks - blocks % granularity,
            granularity,
        }
    }
}

pub(super) fn body(subject: &Subject<'_>) -> Vec<u8> {
    let geometry = subject.geometry;
    let in_blocks = |bytes: u32| bytes / geometry.block_size;
    let granularity = geometry.optimal_len.max(geometry.physical_block_size);
    let optimal = OPTIMAL_TRANSFER_BYTES.next_multiple_of(granularity);

    let mut body = vec![0; BODY_LEN];
    let mut put = |byte: usize, field: &[u8]| body[byte - 4..][..field.len()].copy_from_slice(field);
    // WSNZ stays 0: a WRITE SAME of no blocks goes to the end. MAXIMUM TRANSFER LENGTH 0 means no limit: transfers move
    // chunk by chunk, so that their length costs no memory. MAXIMUM PREFETCH LENGTH has none either.
    put(
        5,
        &[maximum_compare_and_write_blocks(geometry, subject.abilities)],
    );
    let granularity_blocks = u16::try_from(in_blocks(granularity)).unwrap_or(0);
    put(6, &granularity_blocks.to_be_bytes());
    put(12, &in_blocks(optimal).to_be_bytes());
    if is_thin(subject.config, geometry) {
        let unmap_granularity = in_blocks(geometry.unmap_granularity).max(1);
        put(20, &MAXIMUM_UNMAP_BLOCKS.to_be_bytes());
        put(24, &MAXIMUM_UNMAP_DESCRIPTORS.to_be_bytes());
        put(28, &unmap_granularity.to_be_bytes());
        let alignment = in_blocks(geometry.unmap_alignment) % unmap_granularity;
        put(32, &(UGAVALID | alignment).to_be_bytes());
    }
    put(36, &u64::from(maximum_write_same_blocks(geometry)).to_be_bytes());
    let atomic = AtomicLimits::new(geometry, subject.abilities);
    if atomic.most > 0 {
        // The atomic limit must not be above the other one, even for those who take "none" for the number 0.
        put(8, &u32::MAX.to_be_bytes());
        put(44, &atomic.most.to_be_bytes());
        put(48, &atomic.granularity.to_be_bytes());
        put(52, &atomic.granularity.to_be_bytes());
        // MAXIMUM ATOMIC BOUNDARY SIZE stays 0: a write is not cut at boundaries.
    }
    body
}

/// Page length of SBC-3 and SBC-4, without the header.
const BODY_LEN: usize = 0x3c;

const MAXIMUM_WRITE_SAME_BYTES: u32 = 512 << 20;

/// OPTIMAL TRANSFER LENGTH in bytes, before it is made a multiple of the granularity. Linux takes it as the length of
/// its largest request.
const OPTIMAL_TRANSFER_BYTES: u32 = 1 << 20;

/// The bit that says that UNMAP GRANULARITY ALIGNMENT counts.
const UGAVALID: u32 = 0x8000_0000;

#[cfg(test)]
mod tests {
    use backstores::{Abilities, Geometry};

    use crate::scsi::primary::vpd::tests::{config, geometry, page_of_able, with_page};

    fn field(page: &[u8], byte: usize) -> u32 {
        u32::from_be_bytes(page[byte..byte + 4].try_into().unwrap())
    }

    #[test]
    fn limits_of_a_thin_unit() {
        let page = with_page(0xb0, &geometry(), &config()).unwrap();
        assert_eq!(page.len(), 64);
        assert_eq!(page[..8], [0, 0xb0, 0, 0x3c, 0, 255, 0, 8]);
        let fields = [8, 12, 16, 20, 24, 28, 32, 36, 40].map(|byte| field(&page, byte));
        assert_eq!(fields, [0, 2048, 0, 0x10_0000, 256, 8, 0x8000_0000, 0, 0x10_0000]);
        assert_eq!(page[44..], [0; 20]);
    }

    #[test]
    fn granules_begin_where_the_device_says() {
        let shifted = Geometry {
            unmap_granularity: 1 << 20,
            unmap_alignment: (1 << 20) - 4096,
            ..geometry()
        };
        let page = with_page(0xb0, &shifted, &config()).unwrap();
        assert_eq!([28, 32].map(|byte| field(&page, byte)), [2048, 0x8000_07f8]);
    }

    #[test]
    fn a_thick_unit_names_no_unmap_limits() {
        let thick = crate::scsi::UnitConfig {
            thin: false,
            ..config()
        };
        let never_gives_back = Geometry {
            unmap_granularity: 0,
            ..geometry()
        };
        for page in [
            with_page(0xb0, &geometry(), &thick),
            with_page(0xb0, &never_gives_back, &config()),
        ] {
            assert_eq!(page.unwrap()[20..36], [0; 16]);
        }
    }

    #[test]
    fn limits_are_counted_in_blocks_and_fit_the_preferred_granularity() {
        let striped = Geometry {
            block_size: 4096,
            optimal_len: 768 << 10,
            ..geometry()
        };
        let page = with_page(0xb0, &striped, &config()).unwrap();
        assert_eq!(page[6..8], [0, 192]);
        assert_eq!(field(&page, 12), 384);
        assert_eq!(field(&page, 28), 1);
        assert_eq!(field(&page, 40), 0x2_0000);
    }

    #[test]
    fn atomic_writes_have_limits_only_where_the_store_has_them() {
        let able = |atomic_len| Abilities {
            atomic_len,
            ..Abilities::default()
        };
        let page = page_of_able(0xb0, &geometry(), able(0x4_0000), &config()).unwrap();
        assert_eq!(
            [8, 44, 48, 52, 56, 60].map(|byte| field(&page, byte)),
            [0xffff_ffff, 512, 8, 8, 0, 0]
        );
        for too_little in [0, 512, 4095] {
            let page = page_of_able(0xb0, &geometry(), able(too_little), &config()).unwrap();
            assert_eq!(page[8..12], [0; 4]);
            assert_eq!(page[44..], [0; 20], "{too_little}");
        }
    }

    #[test]
    fn twice_the_blocks_of_a_compare_and_write_fit_a_buffer() {
        let large = Geometry {
            block_size: 4096,
            ..geometry()
        };
        assert_eq!(with_page(0xb0, &large, &config()).unwrap()[5], 32);
    }
}
