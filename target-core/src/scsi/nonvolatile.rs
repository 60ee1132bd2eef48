//! The port to what must outlive the program: saved mode parameters and identifying information of logical units. The
//! core knows neither files nor databases; whoever assembles units gives it one of these.

use std::fmt;
use std::io;
use std::pin::Pin;

/// Keeps short texts of logical units over restarts and power cuts.
pub trait NonVolatileMemory: fmt::Debug + Send + Sync {
    /// What was kept last; `None` when nothing ever was. May block; asked while a unit is assembled.
    ///
    /// # Errors
    /// What is there cannot be read.
    fn recall(&self, unit: &[u8], what: &str) -> io::Result<Option<String>>;

    /// Keeps a text in the place of an earlier one. `unit` is its NAA identifier. Durable when the future is done, which
    /// goes on to its end once it has been polled.
    fn keep(&self, unit: &[u8], what: &'static str, text: String) -> Keeping;
}

/// The way of a text to where it outlives the program.
pub type Keeping = Pin<Box<dyn Future<Output = io::Result<()>> + Send>>;
