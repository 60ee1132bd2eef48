//! [`Slots`]: things under numbers that are given out again. For what a device has in hand: looked up once each, with no
//! hash to be made of a number that is ours.

/// A table whose places are used again. It is as long as there were ever things in it at once.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    slots: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Slots<T> {
    /// Puts something in and gives its number, which no other thing has until it is taken.
    pub(crate) fn put(&mut self, thing: T) -> u64 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[place] = Some(thing);
        place as u64
    }

    /// Takes what has this number; `None` when nothing has.
    pub(crate) fn take(&mut self, number: u64) -> Option<T> {
        let place = usize::try_from(number).ok()?;
        let thing = self.slots.get_mut(place)?.take()?;
        self.free.push(place);
        Some(thing)
    }

    #[cfg(feature = "verbs")]
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = T> {
        self.free.clear();
        self.slots.drain(..).flatten()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().flatten()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_given_out_again_once_its_thing_is_taken() {
        let mut slots = Slots::default();
        assert_eq!([slots.put('a'), slots.put('b'), slots.put('c')], [0, 1, 2]);
        assert_eq!(slots.take(1), Some('b'));
        assert_eq!(slots.take(1), None);
        assert_eq!(slots.take(7), None);
        assert_eq!(slots.iter().collect::<String>(), "ac");
        assert_eq!([slots.put('d'), slots.put('e')], [1, 3]);
        assert_eq!(slots.iter().collect::<String>(), "adce");
    }
}
