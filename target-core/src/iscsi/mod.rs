//! iSCSI sessions and connections as values: events in, actions out, time handed in.

mod authenticate;
mod chap;
mod commands;
mod connection;
mod deferred;
mod discovery;
mod ending;
mod event;
mod full_feature;
mod identify;
mod joining;
mod keepalive;
mod link;
mod login;
mod login_phase;
mod logout;
mod loss;
mod management;
mod negotiate;
mod observed;
mod params;
mod place;
mod reassign;
mod refusal;
mod registry;
mod requests;
mod retained;
mod snack;
mod task_events;
mod task_management;
mod tasks;
mod text;
mod text_exchange;
mod window;

pub use connection::Connection;
pub use discovery::Asker;
pub use event::{Action, CloseReason, Event, LinkId, Order, PeerMisbehaved, Start};
pub use full_feature::IMMEDIATE_MAX;
pub use login::{
    Admission, LinkInfo, Login, LoginAnswer, LoginFailure, LoginStep, PendingAdmission, SegmentLengths,
    TransportKeys,
};
pub use login_phase::JoiningLogin;
pub use observed::NodeEvent;
pub use params::{SessionParams, SessionType};
pub(crate) use place::{Entrance, Joining, SessionPlace};
pub(crate) use registry::Membership;
pub use registry::{Admitted, Node, Refusal, SessionView};
pub use text::{TextOutcome, answer_text};
