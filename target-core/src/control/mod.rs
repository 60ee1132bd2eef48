//! What is served, to whom, under which rules: plain values and the live snapshot of them.

mod access;
mod directory;
mod parameters;
mod target;

pub use access::{Access, ChapCredential, ChapPolicy, Secret};
pub use directory::{Directory, Portal};
pub use parameters::{ParameterError, Parameters};
pub use target::Target;
