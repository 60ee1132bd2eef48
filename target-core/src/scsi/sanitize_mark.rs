//! The mark that a sanitize operation leaves where it outlives the process, until it has succeeded: a medium that was erased
//! in part must not be taken for a whole one. The core opens no file: whoever runs it takes requests from a queue and
//! answers each when it is durable.

use tokio::sync::{mpsc, oneshot};

/// A sanitize operation has begun and has not succeeded.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SanitizeMark {
    /// Its AUSE: EXIT FAILURE MODE lets the medium be used again.
    pub unrestricted: bool,
    /// What is to be done, or done anew when the process ended meanwhile; `None` after it failed.
    pub work: Option<SanitizeWork>,
}

/// What a sanitize operation does to the medium.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum SanitizeWork {
    /// Whatever may hold data is overwritten with zeroes, then given back.
    EraseBlocks,
    /// The key of the store is replaced.
    EraseKey,
    /// Every block is written with a pattern.
    Overwrite {
        /// Repeated to the end of each block; not empty.
        pattern: Vec<u8>,
        /// How often.
        passes: u8,
        /// Every other time all bits are inverted, but not the last time.
        invert: bool,
    },
}

/// A request to set or take away the mark of a unit. At most one a unit is under way.
#[derive(Debug)]
pub struct MarkRequest {
    /// The unit, by its NAA identifier in hexadecimal digits.
    pub unit: String,
    /// The mark; `None` when there is to be none.
    pub mark: Option<SanitizeMark>,
    /// Told when it is durable, or else why not. Dropping it says that it failed.
    pub done: oneshot::Sender<Result<(), String>>,
}

/// Where units send their requests. Unbounded, because each unit waits for its answer before it asks again.
pub type MarkKeeper = mpsc::UnboundedSender<MarkRequest>;
