//! Which 4 KiB units of a pool's memory are free: pure bookkeeping behind [`BufPool`](crate::BufPool).
//!
//! Memory is cut into slabs of 256 KiB. A slab is one 64-bit word, a bit per 4 KiB unit, set while the unit is free. A
//! block of a class is an aligned run of 1, 4, 16 or 64 units. No slab belongs to a class: neighbours that come back
//! merge by themselves, because the bits lie side by side, so a class can only lack room while others hold the memory,
//! never for good. Small blocks go where the room is already broken, lowest address first, which keeps whole slabs
//! whole.

use crate::buf::CHUNK;

/// Size of a block: `4 KiB << (2 * class)`.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Class {
    K4,
    K16,
    K64,
    K256,
}

impl Class {
    /// The smallest class that holds `len` bytes; `None` above [`CHUNK`].
    pub(crate) fn fitting(len: usize) -> Option<Self> {
        Self::ALL.into_iter().find(|class| len <= class.bytes())
    }

    /// Bytes of a block.
    pub(crate) fn bytes(self) -> usize {
        UNIT * self.units() as usize
    }

    fn units(self) -> u32 {
        1 << (2 * self as u32)
    }

    /// The class four times as large.
    fn parent(self) -> Option<Self> {
        Self::ALL.get(self as usize + 1).copied()
    }

    /// First units of all places where a block of this class may lie in a slab.
    fn places(self) -> u64 {
        match self {
            Self::K4 => u64::MAX,
            Self::K16 => 0x1111_1111_1111_1111,
            Self::K64 => 0x0001_0001_0001_0001,
            Self::K256 => 1,
        }
    }

    const ALL: [Self; 4] = [Self::K4, Self::K16, Self::K64, Self::K256];
}

/// All slabs of a pool.
#[derive(Debug)]
pub(crate) struct Slabs {
    /// One word per slab: its free units.
    free: Vec<u64>,
    /// Per class one bit per slab: it has room for such a block.
    room: [Vec<u64>; 4],
    in_use: usize,
}

impl Slabs {
    /// `count` slabs, all free.
    pub(crate) fn new(count: usize) -> Self {
        let mut slabs = Self {
            free: vec![u64::MAX; count],
            room: [const { Vec::new() }; 4],
            in_use: 0,
        };
        for room in &mut slabs.room {
            room.resize(count.div_ceil(64), 0);
        }
        (0..count).for_each(|slab| slabs.note_room(slab));
        slabs
    }

    /// Bytes handed out.
    pub(crate) fn in_use(&self) -> usize {
        self.in_use
    }

    /// Takes a block and gives its byte offset.
    pub(crate) fn take(&mut self, class: Class) -> Option<usize> {
        let slab = self.find(class)?;
        let unit = pick(self.free[slab], class).expect("the room bit says there is one");
        self.free[slab] &= !mask(unit, class);
        self.note_room(slab);
        self.in_use += class.bytes();
        Some(slab * CHUNK + unit as usize * UNIT)
    }

    /// Gives a block back.
    pub(crate) fn give(&mut self, at: usize, class: Class) {
        let (slab, unit) = (at / CHUNK, at % CHUNK / UNIT);
        let units = mask(u32::try_from(unit).expect("a slab has 64 units"), class);
        debug_assert_eq!(self.free[slab] & units, 0, "a block came back twice");
        self.free[slab] |= units;
        self.note_room(slab);
        self.in_use -= class.bytes();
    }

    /// The first slab whose room for `class` is of no use to the next larger class, else the first with any room.
    fn find(&self, class: Class) -> Option<usize> {
        let room = &self.room[class as usize];
        let exact = class.parent().and_then(|parent| {
            let larger = &self.room[parent as usize];
            first_bit(room.iter().zip(larger).map(|(some, more)| some & !more))
        });
        exact.or_else(|| first_bit(room.iter().copied()))
    }

    fn note_room(&mut self, slab: usize) {
        let (word, bit) = (slab / 64, 1 << (slab % 64));
        for class in Class::ALL {
            if runs(self.free[slab], class) == 0 {
                self.room[class as usize][word] &= !bit;
            } else {
                self.room[class as usize][word] |= bit;
            }
        }
    }
}

fn first_bit(words: impl Iterator<Item = u64>) -> Option<usize> {
    let (index, word) = words.enumerate().find(|(_, word)| *word != 0)?;
    Some(index * 64 + word.trailing_zeros() as usize)
}

/// First units of the free places for a class.
fn runs(free: u64, class: Class) -> u64 {
    let (mut runs, mut width) = (free, 1);
    while width < class.units() {
        runs &= runs >> width;
        width *= 2;
    }
    runs & class.places()
}

/// The best place in a slab: one whose larger neighbourhood is broken already, if there is such.
fn pick(free: u64, class: Class) -> Option<u32> {
    let all = runs(free, class);
    let inside_larger = class.parent().map_or(0, |parent| {
        let (larger, step) = (runs(free, parent), class.units());
        larger | larger << step | larger << (2 * step) | larger << (3 * step)
    });
    [all & !inside_larger, all]
        .into_iter()
        .find(|places| *places != 0)
        .map(u64::trailing_zeros)
}

fn mask(unit: u32, class: Class) -> u64 {
    (u64::MAX >> (64 - class.units())) << unit
}

const UNIT: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_take_the_smallest_fitting_class() {
        for (len, class) in [
            (0, Some(Class::K4)),
            (4096, Some(Class::K4)),
            (4097, Some(Class::K16)),
            (16_384, Some(Class::K16)),
            (65_536, Some(Class::K64)),
            (65_537, Some(Class::K256)),
            (262_144, Some(Class::K256)),
            (262_145, None),
        ] {
            assert_eq!(Class::fitting(len), class, "{len}");
        }
    }

    #[test]
    fn small_blocks_fill_a_broken_slab_before_they_break_another() {
        let mut slabs = Slabs::new(2);
        let places: Vec<_> = (0..64).map(|_| slabs.take(Class::K4).unwrap()).collect();
        assert!(places.iter().all(|at| *at < 262_144), "{places:?}");
        assert_eq!(slabs.take(Class::K256), Some(262_144));
    }

    #[test]
    fn blocks_of_all_classes_never_overlap_and_merge_when_they_return() {
        let mut slabs = Slabs::new(1);
        let mut taken = Vec::new();
        for class in [
            Class::K4,
            Class::K64,
            Class::K16,
            Class::K4,
            Class::K64,
            Class::K64,
        ] {
            taken.push((slabs.take(class).unwrap(), class));
        }
        assert_eq!(slabs.take(Class::K256), None);
        let mut units: Vec<_> = taken
            .iter()
            .flat_map(|(at, class)| (*at..at + class.bytes()).step_by(UNIT))
            .collect();
        let count = units.len();
        units.sort_unstable();
        units.dedup();
        assert_eq!(units.len(), count);
        for (at, class) in taken {
            slabs.give(at, class);
        }
        assert_eq!(slabs.in_use(), 0);
        assert_eq!(slabs.take(Class::K256), Some(0));
    }

    #[test]
    fn a_hole_of_the_right_size_is_used_first() {
        let mut slabs = Slabs::new(1);
        let first = slabs.take(Class::K16).unwrap();
        let second = slabs.take(Class::K16).unwrap();
        slabs.give(first, Class::K16);
        let small = slabs.take(Class::K4).unwrap();
        assert_eq!(small, first);
        assert_eq!(
            slabs.take(Class::K4),
            Some(first + UNIT),
            "before the untouched 64 KiB"
        );
        assert_eq!(second, 16_384);
    }
}
