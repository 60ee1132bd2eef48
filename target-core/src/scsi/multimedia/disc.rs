//! The disc in the drive: how large it is, what kind of disc that makes it, and how its addresses are written.

use crate::scsi::LogicalUnit;

/// A disc. Track 1 begins at block 0, and the lead-out follows the last block.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Disc {
    /// Blocks of 2048 bytes.
    pub(super) blocks: u32,
}

/// What a drive plays: the profiles of MMC-6 §5.3 that an image can have.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Profile {
    CdRom,
    DvdRom,
}

impl Disc {
    /// The disc of a unit.
    pub(super) fn of(unit: &LogicalUnit) -> Self {
        Self {
            blocks: u32::try_from(unit.blocks()).unwrap_or(u32::MAX),
        }
    }

    /// What does not fit on a CD of 80 minutes is a DVD.
    pub(super) fn profile(self) -> Profile {
        if self.blocks <= CD_BLOCKS_MAX {
            Profile::CdRom
        } else {
            Profile::DvdRom
        }
    }
}

impl Profile {
    /// PROFILE NUMBER.
    pub(super) const fn number(self) -> u16 {
        match self {
            Self::CdRom => 0x0008,
            Self::DvdRom => 0x0010,
        }
    }
}

/// An address field of four bytes: the block, or with `msf` minutes, seconds and frames from the start of the pregap.
pub(super) fn address(lba: u32, msf: bool) -> [u8; 4] {
    if msf {
        let [minute, second, frame] = minutes(lba);
        [0, minute, second, frame]
    } else {
        lba.to_be_bytes()
    }
}

/// Minute, second, frame of a block. What lies beyond minute 255, as it can on a DVD, stays at its last frame.
pub(super) fn minutes(lba: u32) -> [u8; 3] {
    let frames = lba.saturating_add(PREGAP).min(256 * FRAMES_OF_MINUTE - 1);
    let small = |number: u32| u8::try_from(number).expect("bounded above");
    [
        small(frames / FRAMES_OF_MINUTE),
        small(frames / FRAMES % 60),
        small(frames % FRAMES),
    ]
}

/// The block of minute, second and frame; `None` for one in the pregap.
pub(super) fn block_of([minute, second, frame]: [u8; 3]) -> Option<u32> {
    let frames = (u32::from(minute) * 60 + u32::from(second)) * FRAMES + u32::from(frame);
    frames.checked_sub(PREGAP)
}

/// Bytes of a block.
pub(super) const BLOCK_LEN: u32 = 2048;

/// ADR 1 (the sub-channel tells the position) and CONTROL 4 (a data track, not to be copied).
pub(super) const ADR_CONTROL: u8 = 0x14;

/// The number that stands for the lead-out where a track is expected.
pub(super) const LEAD_OUT: u8 = 0xaa;

/// Frames, which are blocks, of a second.
const FRAMES: u32 = 75;
const FRAMES_OF_MINUTE: u32 = 60 * FRAMES;
/// Frames before block 0: two seconds.
const PREGAP: u32 = 2 * FRAMES;
/// 80 minutes.
const CD_BLOCKS_MAX: u32 = 80 * FRAMES_OF_MINUTE;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_blocks_or_times() {
        assert_eq!(address(0, true), [0, 0, 2, 0]);
        assert_eq!(address(16, true), [0, 0, 2, 16]);
        assert_eq!(address(333_000 - 150, true), [0, 74, 0, 0]);
        assert_eq!(address(u32::MAX, true), [0, 255, 59, 74]);
        assert_eq!(address(0x1_0203, false), [0, 1, 2, 3]);
        assert_eq!(block_of([74, 0, 0]), Some(333_000 - 150));
        assert_eq!(block_of([0, 1, 74]), None);
    }

    #[test]
    fn more_than_eighty_minutes_are_a_dvd() {
        assert_eq!(Disc { blocks: 360_000 }.profile().number(), 0x08);
        assert_eq!(Disc { blocks: 360_001 }.profile().number(), 0x10);
    }
}
