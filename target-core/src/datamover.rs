//! The seam between iSCSI and what carries it: the Datamover of RFC 5047 as a trait.

use std::sync::Arc;
use std::task::{Context, Poll};

use backstores::{BufPool, IoBuf};
use bytes::Bytes;
use iscsi_proto::pdu::{Request, Residual, Response, ScsiCommand, Snack};
use iscsi_proto::{Ahs, Itt, Lun, Sn};
use tokio::sync::OwnedSemaphorePermit;

use crate::data_out::OutRemains;
use crate::iscsi::SessionParams;
use crate::replay::SentTask;
use crate::scsi::Sense;
use crate::trace::Tap;

/// Moves iSCSI PDUs and SCSI data for one connection.
///
/// Calls only queue work. Work reaches the wire in the order it was submitted: a response submitted after a
/// `put_data` is never seen before that data. Everything the peer or the hardware does comes back from
/// [`poll_notify`](Self::poll_notify), which also drives sending. State lives inside, so a dropped poll loses nothing.
pub trait DataMover: Send + 'static {
    /// Tells this tap of every PDU that comes or goes, while it is on. Called once, before anything moves. Movers of
    /// tests need not.
    fn listen_in(&mut self, tap: Arc<Tap>) {
        drop(tap);
    }

    /// The connection has joined a session that another thread serves, and is polled there from now on, with that
    /// thread's buffers: whatever is tied to the old thread is tied to the new one.
    fn move_to(&mut self, pool: &Arc<BufPool>) -> Result<(), TransportClosed>;

    /// Negotiation is over; `params` rule from the next PDU on, in both directions. What was queued before goes out
    /// under the old rules. (Notice_Key_Values and Enable_Datamover)
    fn enable(&mut self, params: &SessionParams);

    /// Sends one response that carries no SCSI data. `pdu` is complete, counters included. (Send_Control)
    fn send_control(&mut self, pdu: Response, data: Bytes);

    /// Delivers a piece of Data-In, and the status after the last piece if the command ended well. (Put_Data)
    fn put_data(&mut self, put: PutData);

    /// Fills the rest of `get.buf` from the initiator, then notifies [`Notify::DataOut`]. At most one per task is
    /// outstanding. (Get_Data)
    fn get_data(&mut self, get: GetData);

    /// Stops moving data for a task. [`Notify::Released`] follows when nothing can touch its buffers any more and the
    /// peer has answered (or can no longer answer) what it was asked for. (Deallocate_Task_Resources)
    fn release_task(&mut self, itt: Itt);

    /// A command has ended and its response was submitted: forget what was kept for it.
    fn end_task(&mut self, itt: Itt);

    /// Does a SNACK for Data-In or R2Ts (§11.16): sends again, or takes note of an acknowledgement. Transports that lose
    /// nothing and never will be asked need not have it, nor the next two.
    fn snack(&mut self, snack: &Snack, numbering: Numbering) -> Result<(), Unsent> {
        let _ = (snack, numbering);
        Err(Unsent::Unknown)
    }

    /// Nothing that was sent for a task can be asked for again any more.
    fn forget_task(&mut self, itt: Itt) {
        let _ = itt;
    }

    /// A task waits for Data-Out, and perhaps in vain: what may have been lost is asked for again.
    fn look_after(&mut self, itt: Itt) {
        let _ = itt;
    }

    /// The connection is gone, and the task is not: gives what is kept for it. Called before the mover is dropped, at
    /// ErrorRecoveryLevel 2.
    fn surrender(&mut self, itt: Itt) -> TaskRemains {
        let _ = itt;
        TaskRemains::default()
    }

    /// Goes on with a task of another connection: sends what the initiator misses of its Data-In, from this DataSN on (0:
    /// all that was not acknowledged), and asks for what it has not sent of its Data-Out.
    fn adopt(
        &mut self,
        itt: Itt,
        remains: TaskRemains,
        next_data_sn: u32,
        numbering: Numbering,
    ) -> Result<(), Unsent> {
        let _ = (itt, remains, next_data_sn, numbering);
        Err(Unsent::Unknown)
    }

    /// Sends what is queued, then disconnects. The caller bounds it in time. (Connection_Terminate)
    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<()>;

    /// Drives both directions; ready with the next thing that happened. After `Closed` it is not called again.
    fn poll_notify(&mut self, cx: &mut Context<'_>) -> Poll<Notify>;

    /// Bytes that the peer has not taken yet, and those it was asked for that only a released task would have waited for.
    fn queued_bytes(&self) -> usize;

    /// A number that changes whenever the peer does what it has been waited for longest: while bytes are queued and this
    /// stands still, the peer is stuck.
    fn progress(&self) -> u64;
}

/// What a mover kept for a task whose connection is gone.
#[derive(Debug, Default)]
pub struct TaskRemains {
    /// Data-In that were sent.
    pub sent: Option<SentTask>,
    /// Data-Out that came, and that was waited for.
    pub out: OutRemains,
}

/// Why something was not sent again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Unsent {
    /// It was never sent, or has been acknowledged (§11.16: a protocol error).
    Unknown,
    /// It was sent, and is not kept any more: there was too much of it.
    NotKept,
}

/// What the peer or the hardware did.
#[derive(Debug)]
pub enum Notify {
    /// A SCSI command. Immediate data are in a block that has room for the first chunk. (Control_Notify)
    Command {
        /// The header.
        pdu: ScsiCommand,
        /// Its additional header segments.
        ahs: Ahs,
        /// Immediate data; the visible length is what came.
        immediate: Option<IoBuf>,
    },
    /// Any other request but Data-Out. (Control_Notify)
    Control {
        /// The header.
        pdu: Request,
        /// Its data segment.
        data: Bytes,
    },
    /// A header that is no valid PDU: to be answered with Reject (the stream itself is still in step).
    Malformed {
        /// The header as it came.
        bhs: [u8; iscsi_proto::BHS_LEN],
        /// What is wrong with it.
        error: iscsi_proto::DecodeError,
    },
    /// A data digest did not match on a PDU that is not Data-Out: to be rejected, its data are gone (§7.8).
    DataDigestError {
        /// The header as it came.
        bhs: [u8; iscsi_proto::BHS_LEN],
    },
    /// Unsolicited Data-Out for a command (InitialR2T=No). Its bytes are kept by the mover for the task's next `get`s;
    /// told only to keep the peer's ExpStatSN and timers current.
    Unsolicited {
        /// The task.
        itt: Itt,
    },
    /// A `get_data` is complete, or broke a rule of §11.4.7.2 (the sense says which). (Data_Completion_Notify)
    DataOut {
        /// The task.
        itt: Itt,
        /// The filled buffer, or why the command must fail.
        result: Result<IoBuf, Sense>,
    },
    /// Answer to [`DataMover::release_task`].
    Released(Itt),
    /// A Data-Out that fits no task or R2T we know, or a PDU that this transport does not know: Reject with this header
    /// (§11.17.1 protocol error).
    OutOfPlace {
        /// The header as it came.
        bhs: [u8; iscsi_proto::BHS_LEN],
    },
    /// The peer acknowledged responses before this StatSN in a Data-Out.
    ExpStatSn(Sn),
    /// The connection is gone or has lost its framing. (Connection_Terminate_Notify)
    Closed(TransportClosed),
}

/// Why a transport ended, for the log.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum TransportClosed {
    /// The peer closed its side between two PDUs.
    #[error("the initiator closed the connection")]
    Eof,
    /// The peer closed in the middle of a PDU.
    #[error("the initiator closed the connection in the middle of a PDU")]
    MidPdu,
    /// The operating system reported an error.
    #[error("{0}")]
    Io(String),
    /// A header digest did not match: there is no way to find the next PDU.
    #[error("{0}")]
    HeaderDigest(String),
    /// Framing is lost or a limit was broken: there is no way to find the next PDU (oversize…). The peer is still there,
    /// and hears what was queued for it.
    #[error("{0}")]
    Framing(String),
}

/// A piece of Data-In.
#[derive(Debug)]
pub struct PutData {
    /// Task.
    pub itt: Itt,
    /// Logical unit, for PDUs that name it.
    pub lun: Lun,
    /// Place of the first byte in the whole Data-In, bytes.
    pub offset: u32,
    /// The bytes.
    pub buf: IoBuf,
    /// Status that ends the command, if this is the last piece and the command ended with GOOD.
    pub last: Option<FinalStatus>,
    /// Counters for the PDU headers.
    pub numbering: Numbering,
    /// Share of the connection's bytes in flight; given back when this value is dropped.
    pub budget: Option<OwnedSemaphorePermit>,
}

/// A wish for Data-Out.
#[derive(Debug)]
pub struct GetData {
    /// Task.
    pub itt: Itt,
    /// Logical unit, for the R2T.
    pub lun: Lun,
    /// Place of `buf[0]` in the whole Data-Out, bytes.
    pub offset: u32,
    /// Where the bytes go; its visible length is what is wanted in the end.
    pub buf: IoBuf,
    /// Bytes of `buf` that are already there (immediate data).
    pub filled: usize,
    /// Counters for the R2T.
    pub numbering: Numbering,
}

/// A good end that can ride on the last Data-In (§11.7.3).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FinalStatus {
    /// SAM status byte.
    pub status: u8,
    /// Residual of the whole transfer.
    pub residual: Residual,
}

/// The counters that every target PDU carries, as they stand when the work is submitted.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Numbering {
    /// StatSN: consumed when `last` is given, else the next one (informative).
    pub stat_sn: Sn,
    /// Next CmdSN expected.
    pub exp_cmd_sn: Sn,
    /// Last CmdSN of the window.
    pub max_cmd_sn: Sn,
}
