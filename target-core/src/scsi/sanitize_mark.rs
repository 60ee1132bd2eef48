//! The mark that a sanitize operation leaves where it outlives the process, until it has succeeded: a medium that was erased
//! in part must not be taken for a whole one. The core opens no file: whoever runs it takes requests from a queue and
//! answers each when it is durable.

use tokio::sync::{mpsc, oneshot};

/// A sanitize operation has begun and has not succeeded.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SanitizeMark {
    /// Its AUSE: EXIT FAILURE MODE lets the medium be used again.
    pub unrestricted: bool,
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
