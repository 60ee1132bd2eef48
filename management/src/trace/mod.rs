//! What was traced, for people: decoded as a list, or as a capture file for other tools.

mod capture;
mod row;
mod segments;

pub use capture::Capture;
pub use row::{TextPair, TraceRow};
