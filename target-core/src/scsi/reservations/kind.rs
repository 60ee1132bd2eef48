//! The six types of persistent reservation (SPC-4 §6.15.3.4), and whom each keeps out.

/// TYPE of a persistent reservation. The scope is always the logical unit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum ReservationType {
    /// Only the holder writes.
    WriteExclusive = 0x1,
    /// Only the holder reads and writes.
    ExclusiveAccess = 0x3,
    /// Only registrants write; one of them is the holder.
    WriteExclusiveRegistrantsOnly = 0x5,
    /// Only registrants read and write; one of them is the holder.
    ExclusiveAccessRegistrantsOnly = 0x6,
    /// Only registrants write; each of them is a holder.
    WriteExclusiveAllRegistrants = 0x7,
    /// Only registrants read and write; each of them is a holder.
    ExclusiveAccessAllRegistrants = 0x8,
}

impl ReservationType {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::WriteExclusive,
        Self::ExclusiveAccess,
        Self::WriteExclusiveRegistrantsOnly,
        Self::ExclusiveAccessRegistrantsOnly,
        Self::WriteExclusiveAllRegistrants,
        Self::ExclusiveAccessAllRegistrants,
    ];

    /// The type of a TYPE field; `None` for values that mean nothing (any more).
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }

    /// Value of the TYPE field.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Whether those whom it keeps out may not even read.
    pub(crate) const fn excludes_readers(self) -> bool {
        match self {
            Self::ExclusiveAccess
            | Self::ExclusiveAccessRegistrantsOnly
            | Self::ExclusiveAccessAllRegistrants => true,
            Self::WriteExclusive
            | Self::WriteExclusiveRegistrantsOnly
            | Self::WriteExclusiveAllRegistrants => false,
        }
    }

    /// Whether it keeps out no registrant: the types "registrants only" and "all registrants".
    pub(crate) const fn admits_registrants(self) -> bool {
        match self {
            Self::WriteExclusive | Self::ExclusiveAccess => false,
            Self::WriteExclusiveRegistrantsOnly
            | Self::ExclusiveAccessRegistrantsOnly
            | Self::WriteExclusiveAllRegistrants
            | Self::ExclusiveAccessAllRegistrants => true,
        }
    }

    /// Whether every registrant holds it (SPC-4 §5.13.10).
    pub(crate) const fn is_all_registrants(self) -> bool {
        matches!(
            self,
            Self::WriteExclusiveAllRegistrants | Self::ExclusiveAccessAllRegistrants
        )
    }
}
