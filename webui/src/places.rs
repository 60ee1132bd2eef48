//! Places for connections: so many in all, and not all of them for one address.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The places of a listener.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places(Arc<Mutex<Taken>>);

#[derive(Debug, Default)]
struct Taken {
    total: usize,
    by_address: BTreeMap<IpAddr, usize>,
    /// Connections that were refused since somebody was told.
    refused: u64,
}

/// A place, given up when it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    places: Places,
    address: Option<IpAddr>,
}

impl Places {
    /// A place for a connection from this address; users of this host have none.
    pub(crate) fn take(&self, address: Option<IpAddr>) -> Option<Place> {
        let address = address.map(network);
        let mut taken = self.taken();
        let theirs = address.map_or(0, |address| taken.by_address.get(&address).copied().unwrap_or(0));
        if taken.total >= TOTAL_MAX || theirs >= ADDRESS_MAX {
            taken.refused += 1;
            return None;
        }
        taken.total += 1;
        if let Some(address) = address {
            *taken.by_address.entry(address).or_default() += 1;
        }
        Some(Place {
            places: self.clone(),
            address,
        })
    }

    /// How many were refused since this was asked for last.
    pub(crate) fn refused(&self) -> u64 {
        std::mem::take(&mut self.taken().refused)
    }

    /// A panic under the lock would leave counts that are off by one.
    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        taken.total -= 1;
        if let Some(address) = self.address
            && let Some(theirs) = taken.by_address.get_mut(&address)
        {
            *theirs -= 1;
            if *theirs == 0 {
                taken.by_address.remove(&address);
            }
        }
    }
}

/// Whoever has an IPv6 address has all of its /64.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
    }
}

/// Connections at once, for each listener.
pub(crate) const TOTAL_MAX: usize = 256;
/// Connections at once from one address.
pub(crate) const ADDRESS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_leaves_places_for_others() {
        let places = Places::default();
        let one = Some("2001:db8::1".parse().unwrap());
        let neighbour = Some("2001:db8::2".parse().unwrap());
        let taken: Vec<_> = std::iter::from_fn(|| places.take(one)).collect();
        assert_eq!(taken.len(), ADDRESS_MAX);
        assert!(places.take(neighbour).is_none(), "the same network");
        assert!(places.take(Some("192.0.2.1".parse().unwrap())).is_some());
        assert_eq!(places.refused(), 2);
        assert_eq!(places.refused(), 0);
        drop(taken);
        assert!(places.take(neighbour).is_some());
    }

    #[test]
    fn there_are_so_many_in_all() {
        let places = Places::default();
        let taken: Vec<_> = std::iter::from_fn(|| places.take(None)).collect();
        assert_eq!(taken.len(), TOTAL_MAX);
    }
}
