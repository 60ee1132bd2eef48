//! iSCSI sessions and connections as values: events in, actions out, time handed in.

mod login;
mod params;

pub use login::{
    Admission, LinkInfo, Login, LoginAnswer, LoginFailure, LoginStep, PendingAdmission, TransportKeys,
};
pub use params::{SessionParams, SessionType};
