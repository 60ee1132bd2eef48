//! iSCSI sessions and connections as values: events in, actions out, time handed in.

mod authenticate;
mod chap;
mod discovery;
mod identify;
mod login;
mod negotiate;
mod params;
mod refusal;
mod text;

pub use discovery::Asker;
pub use login::{
    Admission, LinkInfo, Login, LoginAnswer, LoginFailure, LoginStep, PendingAdmission, TransportKeys,
};
pub use params::{SessionParams, SessionType};
pub use text::{TextOutcome, answer_text};
