//! What a connection hears and what it wants done: the alphabet between [`Connection`](super::Connection) and
//! [`serve`](crate::serve::serve).

use std::time::Duration;

use backstores::IoBuf;
use bytes::Bytes;
use iscsi_proto::pdu::{Function, Response, ScsiCommand, Snack};
use iscsi_proto::{Ahs, Itt, Lun};

use super::login_phase::JoiningLogin;
use super::{Admission, LoginFailure, SessionParams};
use crate::datamover::{GetData, Notify, Numbering, PutData, TransportClosed, Unsent};
use crate::iscsi::registry::{Admitted, Refusal};
use crate::scsi::TmfOutcome;
use crate::transfer::{AbortSignal, TaskEvent, TaskId};

/// A connection of a session, by the order in which they came; never used twice in a session. (A CID is: a connection
/// may take another's place.)
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct LinkId(pub u32);

impl LinkId {
    /// The connection that the session began with.
    pub const LEADING: Self = Self(0);
}

/// Something that happened.
#[derive(Debug)]
pub enum Event {
    /// The mover of a connection says.
    Notify(LinkId, Notify),
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
    /// A connection whose login is complete wants to join this session (§6.3.1); its mover is at hand.
    Join(LinkId, JoiningLogin),
    /// Answer to [`Action::Snack`].
    Snacked(LinkId, Snack, Result<(), Unsent>),
    /// Answer to [`Action::Adopt`].
    Adopted(LinkId, Itt, Result<(), Unsent>),
    /// The peer of a connection has taken nothing of what we send for so long.
    Stuck(LinkId, Duration),
    /// Somebody outside the connection wants something of it.
    Order(Order),
    /// Time passed: the deadline of `poll_timeout` is over, or may be.
    Timeout,
}

/// Something to do, in the order given.
#[derive(Debug)]
pub enum Action {
    /// Tell a connection's mover what was agreed.
    Enable(LinkId, SessionParams),
    /// Send a PDU with its data segment.
    Send(LinkId, Response, Bytes),
    /// Send a piece of Data-In.
    Put(LinkId, PutData),
    /// Fetch a piece of Data-Out.
    Get(LinkId, GetData),
    /// Stop moving data for a task that was aborted.
    Release(LinkId, Itt),
    /// A task has been answered.
    End(LinkId, Itt),
    /// Do the mover's part of a SNACK; [`Event::Snacked`] answers.
    Snack(LinkId, Snack, Numbering),
    /// A task's status is acknowledged: nothing of it is asked for again.
    Forget(LinkId, Itt),
    /// A task has waited for Data-Out for a while.
    LookAfter(LinkId, Itt),
    /// A connection is gone; take from its mover what it kept for these tasks, and keep it.
    Surrender(LinkId, Vec<Itt>),
    /// Hand what was kept of a task to the mover of another connection, which goes on from this DataSN;
    /// [`Event::Adopted`] answers.
    Adopt {
        /// The connection that the task is allegiant to from now on.
        link: LinkId,
        /// The task.
        itt: Itt,
        /// The first Data-In that the initiator has not.
        next_data_sn: u32,
        /// Counters for what is sent.
        numbering: Numbering,
    },
    /// What was kept of a task is not needed any more.
    Discard(Itt),
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
    /// Tasks on these units ended with their connection: the nexus has to be told (§7.5).
    TellCleared(Vec<Lun>),
    /// Ask the registry to let a session in; [`Event::Admission`] answers.
    Admit(Box<Admission>),
    /// TARGET COLD RESET was answered: every session of the target ends (§11.5.1).
    DropSessions,
    /// Send what is queued on this connection, then disconnect it. The session goes on.
    Disconnect(LinkId, CloseReason),
    /// Send what is queued, then disconnect all there is. Nothing follows.
    Close(CloseReason),
}

/// A command on its way to the device.
#[derive(Debug)]
pub struct Start {
    /// The connection that it came by, and that its data and status go by.
    pub link: LinkId,
    /// Its name in this session.
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
    /// A discovery session that nobody used any more.
    #[error("nothing came in the discovery session for {0:?}")]
    Idle(Duration),
    /// An R2T was not answered.
    #[error("task {itt:#010x} waited {waited:?} for Data-Out")]
    DataOutStuck {
        /// Task.
        itt: u32,
        /// How long.
        waited: Duration,
    },
    /// The peer takes nothing of what we send, or leaves a read of an aborted task unanswered.
    #[error("what waits for the initiator to take or to give it has not moved for {0:?}")]
    ResponsesStuck(Duration),
    /// Ordered from outside.
    #[error("{}", describe(*.0))]
    Ordered(Order),
    /// It goes on as one of several connections of a session.
    #[error("the connection joins session {0:#06x}")]
    Joined(u16),
    /// A newer connection with its CID took its place (§6.3.4).
    #[error("a newer connection with the same CID took its place")]
    ConnectionReinstated,
    /// A session without a connection was not taken up again in time.
    #[error("no connection came back within {waited:?}; the last one had ended so: {last}")]
    NotTakenUp {
        /// How long the session was kept.
        waited: Duration,
        /// Why its last connection had ended.
        last: Box<Self>,
    },
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
    /// §4.2.2.2: ExpStatSN must follow what was received.
    #[error("thousands of responses were not acknowledged")]
    AcknowledgesNothing,
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
