//! What is served, to whom, under which rules: plain values and the live snapshot of them.

mod access;
mod directory;
mod matching;
mod parameters;
mod redirect;
mod target;

pub use access::{Access, AccessRule, ChapCredential, ChapPolicy, Secret};
pub use directory::{Advertised, Directory, Portal};
pub use matching::{MatchError, NamePattern, Network};
pub use parameters::{ParameterError, Parameters};
pub use redirect::{AdvertisedAddress, Redirect};
pub use target::Target;
