//! Block Limits (B0h, SBC-4 §6.6.4). The limits told here are the ones that the commands enforce.

use backstores::Geometry;

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

pub(super) fn body(subject: &Subject<'_>) -> Vec<u8> {
    let geometry = subject.geometry;
    let in_blocks = |bytes: u32| bytes / geometry.block_size;
    let granularity = geometry.optimal_len.max(geometry.physical_block_size);
    let optimal = OPTIMAL_TRANSFER_BYTES.next_multiple_of(granularity);

    let mut body = vec![0; BODY_LEN];
    let mut put = |byte: usize, field: &[u8]| body[byte - 4..][..field.len()].copy_from_slice(field);
    // WSNZ stays 0: a WRITE SAME of no blocks goes to the end. COMPARE AND WRITE is not offered. MAXIMUM TRANSFER
    // LENGTH 0 means no limit: transfers move chunk by chunk, so that their length costs no memory.
    let granularity_blocks = u16::try_from(in_blocks(granularity)).unwrap_or(0);
    put(6, &granularity_blocks.to_be_bytes());
    put(12, &in_blocks(optimal).to_be_bytes());
    if is_thin(subject.config, geometry) {
        let unmap_granularity = in_blocks(geometry.unmap_granularity).max(1);
        put(20, &MAXIMUM_UNMAP_BLOCKS.to_be_bytes());
        put(24, &MAXIMUM_UNMAP_DESCRIPTORS.to_be_bytes());
        put(28, &unmap_granularity.to_be_bytes());
        put(32, &UGAVALID_ALIGNMENT_0.to_be_bytes());
    }
    put(36, &u64::from(maximum_write_same_blocks(geometry)).to_be_bytes());
    body
}

/// Page length of SBC-3 and SBC-4, without the header.
const BODY_LEN: usize = 0x3c;

const MAXIMUM_WRITE_SAME_BYTES: u32 = 512 << 20;

/// OPTIMAL TRANSFER LENGTH in bytes, before it is made a multiple of the granularity. Linux takes it as the length of
/// its largest request.
const OPTIMAL_TRANSFER_BYTES: u32 = 1 << 20;

/// UNMAP GRANULARITY ALIGNMENT of 0, and the bit that says that it counts.
const UGAVALID_ALIGNMENT_0: u32 = 0x8000_0000;

#[cfg(test)]
mod tests {
    use backstores::Geometry;

    use crate::scsi::primary::vpd::tests::{config, geometry, with_page};

    fn field(page: &[u8], byte: usize) -> u32 {
        u32::from_be_bytes(page[byte..byte + 4].try_into().unwrap())
    }

    #[test]
    fn limits_of_a_thin_unit() {
        let page = with_page(0xb0, &geometry(), &config()).unwrap();
        assert_eq!(page.len(), 64);
        assert_eq!(page[..8], [0, 0xb0, 0, 0x3c, 0, 0, 0, 8]);
        let fields = [8, 12, 16, 20, 24, 28, 32, 36, 40].map(|byte| field(&page, byte));
        assert_eq!(fields, [0, 2048, 0, 0x10_0000, 256, 8, 0x8000_0000, 0, 0x10_0000]);
        assert_eq!(page[44..], [0; 20]);
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
}
