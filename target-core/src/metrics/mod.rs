//! What is counted on the data path, and how it is gathered.
//!
//! Each session counts for itself, in cells that only its loop writes (`counter.rs`, `session.rs`); a lock is taken when
//! a session begins, ends or first uses a LUN, and when somebody asks. Time is the loop's own, read once a turn: a
//! command costs no look at the clock, and the simulation counts in its own time. What a session counted outlives it in
//! the totals of its LUNs and its transport (`gathered.rs`); by initiator there is only what initiators with a session
//! did, so that the number of series is bounded by what is there.

mod clock;
mod counter;
mod gathered;
mod histogram;
mod logins;
mod session;

pub use clock::TurnClock;
pub use gathered::{Gathered, InitiatorRow, LunRow, SessionRow, TransportRow};
pub use histogram::{BOUNDS, HistogramCounts};
pub use logins::{LoginRow, login_result};
pub use session::{CommandKind, Ended, How, KindCounts, LinkCounts, LunCounts, Slot, function_name};

pub(crate) use gathered::Metrics;
pub(crate) use logins::Logins;
pub(crate) use session::SessionMeter;
