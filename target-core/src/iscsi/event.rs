//! What a connection hears and what it wants done: the alphabet between [`Connection`](super::Connection) and
//! [`serve`](crate::serve::serve).

use std::time::Duration;

use backstores::IoBuf;
use bytes::Bytes;
use iscsi_proto::pdu::{Function, Response, ScsiCommand};
use iscsi_proto::{Ahs, Itt, Lun};

use super::{Admission, LoginFailure, SessionParams};
use crate::datamover::{GetData, Notify, PutData, TransportClosed};
use crate::iscsi::registry::{Admitted, Refusal};
use crate::scsi::TmfOutcome;
use crate::transfer::{AbortSignal, TaskEvent, TaskId};

/// Something that happened.
#[derive(Debug)]
pub enum Event {
    /// The mover says.
    Notify(Notify),
    /// A command says.
    Task(TaskEvent),
    /// Answer to [`Action::Manage`].
    Managed {
        /// Tag of the task management request.
        itt: Itt,
        /// What the device answered.
        outcome: TmfOutcome,
    },
    /// Answer to [`Action::Admit`].
    Admission(Result<Admitted, Refusal>),
    /// Somebody outside the connection wants something of it.
    Order(Order),
    /// Time passed: the deadline of `poll_timeout` is over, or may be.
    Timeout,
}

/// Something to do, in the order given.
#[derive(Debug)]
pub enum Action {
    /// Tell the mover what was agreed.
    Enable(SessionParams),
    /// Send a PDU with its data segment.
    Send(Response, Bytes),
    /// Send a piece of Data-In.
    Put(PutData),
    /// Fetch a piece of Data-Out.
    Get(GetData),
    /// Stop moving data for a task that was aborted.
    Release(Itt),
    /// A task has been answered.
    End(Itt),
    /// Hand a command to the device.
    Start(Start),
    /// Hand a task management function to the device; [`Event::Managed`] answers.
    Manage {
        /// Tag of the request.
        itt: Itt,
        /// Function.
        function: Function,
        /// Logical unit it addresses.
        lun: Lun,
    },
    /// Ask the registry to let a session in; [`Event::Admission`] answers.
    Admit(Box<Admission>),
    /// TARGET COLD RESET was answered: every session of the target ends (§11.5.1).
    DropSessions,
    /// Send what is queued, then disconnect. Nothing follows.
    Close(CloseReason),
}

/// A command on its way to the device.
#[derive(Debug)]
pub struct Start {
    /// Its name in this connection.
    pub task: TaskId,
    /// Header.
    pub pdu: ScsiCommand,
    /// Additional header segments.
    pub ahs: Ahs,
    /// Immediate data.
    pub immediate: Option<IoBuf>,
    /// Fires when the task is aborted.
    pub abort: AbortSignal,
}

/// What the target's owner, or another session, wants of a connection. A later order supersedes a milder one.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Order {
    /// Ask the initiator to log out (Async Message 1); close when it has not done so in time.
    Logout {
        /// Patience, told to the initiator in whole seconds.
        within: Duration,
    },
    /// Start no more commands; when the running ones have ended (or ten seconds later) drop the session.
    Drain,
    /// Tell the initiator that its session is dropped (Async Message 3) and close.
    Close,
    /// TARGET COLD RESET: as [`Self::Close`].
    TargetReset,
    /// A newer login took this session's place (§6.3.5): close at once, without a word.
    Reinstated,
}

/// Why a connection ended, for the log: whose doing it was.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum CloseReason {
    /// The initiator logged out.
    #[error("the initiator logged out")]
    LoggedOut,
    /// A login was answered with a failure.
    #[error("login refused: {0}")]
    LoginFailed(LoginFailure),
    /// Full feature phase was not reached in time.
    #[error("login was not complete within {0:?}")]
    LoginTimeout(Duration),
    /// The transport ended.
    #[error("{0}")]
    Transport(TransportClosed),
    /// The initiator broke a rule after which the connection cannot go on.
    #[error("{0}")]
    Misbehaved(PeerMisbehaved),
    /// A NOP-In was not answered.
    #[error("the initiator did not answer a NOP-In within {0:?}")]
    Silent(Duration),
    /// An R2T was not answered.
    #[error("task {itt:#010x} waited {waited:?} for Data-Out")]
    DataOutStuck {
        /// Task.
        itt: u32,
        /// How long.
        waited: Duration,
    },
    /// The peer takes nothing of what we send.
    #[error("the initiator took no byte of our responses for {0:?}")]
    ResponsesStuck(Duration),
    /// Ordered from outside.
    #[error("{}", describe(*.0))]
    Ordered(Order),
}

/// Rules of the protocol whose breach ends a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PeerMisbehaved {
    /// §6.3: the first PDU must be a Login Request.
    #[error("the first PDU was {0}, not a Login Request")]
    NotALogin(&'static str),
    /// §6.3: nothing but Login Requests until full feature phase.
    #[error("{0} arrived during login")]
    DuringLogin(&'static str),
    /// §11.12: no Login Request in full feature phase.
    #[error("a Login Request arrived in full feature phase")]
    LoginInFullFeature,
    /// A header in the login phase that is no PDU.
    #[error("during login: {0}")]
    Malformed(iscsi_proto::DecodeError),
}

fn describe(order: Order) -> &'static str {
    match order {
        Order::Logout { .. } => "the initiator was asked to log out and did not in time",
        Order::Drain => "the target is draining",
        Order::Close => "closed by the target's owner",
        Order::TargetReset => "closed by TARGET COLD RESET",
        Order::Reinstated => "a newer login of the same initiator port took its place",
    }
}
