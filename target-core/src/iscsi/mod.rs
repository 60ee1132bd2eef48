//! iSCSI sessions and connections as values: events in, actions out, time handed in.

mod authenticate;
mod chap;
mod identify;
mod login;
mod negotiate;
mod params;
mod refusal;

pub use login::{
    Admission, LinkInfo, Login, LoginAnswer, LoginFailure, LoginStep, PendingAdmission, TransportKeys,
};
pub use params::{SessionParams, SessionType};
