//! The port to what must outlive the program: saved mode parameters and identifying information of logical units, states
//! of target port groups. The core knows neither files nor databases; whoever assembles units and devices gives it one of
//! these.

use std::fmt;
use std::io;
use std::pin::Pin;

/// Keeps short texts of logical units and target devices over restarts and power cuts. `owner` is a unit's NAA identifier in
/// hexadecimal digits, or a device's iSCSI name: neither can be taken for the other, and both can name a file.
pub trait NonVolatileMemory: fmt::Debug + Send + Sync {
    /// What was kept last; `None` when nothing ever was. May block; asked while the owner is assembled.
    ///
    /// # Errors
    /// What is there cannot be read.
    fn recall(&self, owner: &str, what: &str) -> io::Result<Option<String>>;

    /// Keeps a text in the place of an earlier one; an empty one takes it away. Durable when the future is done, which goes on to its end once it has
    /// been polled.
    fn keep(&self, owner: &str, what: &'static str, text: String) -> Keeping;
}

/// The way of a text to where it outlives the program.
pub type Keeping = Pin<Box<dyn Future<Output = io::Result<()>> + Send>>;
