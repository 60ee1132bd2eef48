//! Identifiers that travel in iSCSI headers, each a type of its own so that one cannot stand for another.
//! RFC 7143 §11.2.1 (ITT, TTT), §11.12 (ISID, TSIH, CID), §4.2.2 (sequence numbers).

use std::fmt;

/// Initiator Task Tag: the initiator's name for one of its tasks, unique within its session.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Itt(pub u32);

impl Itt {
    /// Names no task (a NOP-Out that wants no answer, Async Message, Reject).
    pub const RESERVED: Self = Self(0xffff_ffff);
}

/// Target Transfer Tag: our name for an R2T or for a NOP-In that wants an answer.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Ttt(pub u32);

impl Ttt {
    /// Names nothing: unsolicited data, or no answer wanted.
    pub const RESERVED: Self = Self(0xffff_ffff);
}

/// Initiator part of a session identifier, 48 bits (§11.12.5).
#[derive(Clone, Copy, Eq, Hash, PartialEq, PartialOrd, Ord)]
pub struct Isid(pub [u8; 6]);

/// Target Session Identifying Handle; 0 asks for a new session (§11.12.6).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Tsih(pub u16);

impl Tsih {
    /// No session yet.
    pub const NEW: Self = Self(0);
}

/// Connection identifier within a session (§11.12.7).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Cid(pub u16);

/// Target Portal Group Tag (§4.1.2).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, PartialOrd, Ord)]
pub struct Tpgt(pub u16);

/// A 32-bit sequence number (CmdSN, StatSN, DataSN, R2TSN). It wraps, so it has serial arithmetic
/// (RFC 1982, named by §4.2.2.1) and deliberately no `Ord`.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Sn(pub u32);

impl Sn {
    /// The number `n` steps later.
    #[must_use]
    pub const fn plus(self, n: u32) -> Self {
        Self(self.0.wrapping_add(n))
    }

    /// The number `n` steps earlier.
    #[must_use]
    pub const fn minus(self, n: u32) -> Self {
        Self(self.0.wrapping_sub(n))
    }

    /// The next number.
    #[must_use]
    pub const fn next(self) -> Self {
        self.plus(1)
    }

    /// Returns the current number and moves on to the next.
    pub const fn advance(&mut self) -> Self {
        let current = *self;
        *self = self.next();
        current
    }

    /// Whether `self` comes before `other` on the serial circle.
    #[must_use]
    pub const fn precedes(self, other: Self) -> bool {
        let distance = other.0.wrapping_sub(self.0);
        distance != 0 && distance < 0x8000_0000
    }

    /// Steps from `earlier` to `self`, modulo 2^32.
    #[must_use]
    pub const fn distance_from(self, earlier: Self) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }
}

impl fmt::Display for Isid {
    /// Twelve hexadecimal digits, as in the name of a SCSI initiator port.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Isid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Isid({self})")
    }
}

impl fmt::Display for Itt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

impl fmt::Display for Ttt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

impl fmt::Display for Tsih {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Display for Cid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Display for Tpgt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Display for Sn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::{Isid, Itt, Sn};

    #[test]
    fn identifiers_are_written_as_administrators_know_them() {
        assert_eq!(Isid([0x00, 0x02, 0x3d, 0, 0, 1]).to_string(), "00023d000001");
        assert_eq!(Itt::RESERVED.to_string(), "0xffffffff");
        assert_eq!(Itt(0x1a).to_string(), "0x0000001a");
    }

    #[test]
    fn serial_order_survives_the_wrap() {
        assert!(Sn(0xffff_ffff).precedes(Sn(0)));
        assert!(!Sn(0).precedes(Sn(0xffff_ffff)));
        assert!(!Sn(5).precedes(Sn(5)));
        assert_eq!(Sn(2).distance_from(Sn(0xffff_fffe)), 4);
    }
}
