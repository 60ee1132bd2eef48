//! The keys of RFC 7145, as data for the login, and what came of them.

use target_core::iscsi::{SegmentLengths, SessionParams, TransportKeys};

/// Longest data segment we take, bytes: with its headers a message fills a block of 16 KiB.
pub const RECEIVE_LEN: usize = 15 * 1024;

/// What an iSER connection negotiates beside the keys of RFC 7143.
#[must_use]
pub fn transport_keys() -> TransportKeys {
    TransportKeys {
        values: vec![
            (RDMA_EXTENSIONS, "Yes".to_owned()),
            (TARGET_RECV, RECEIVE_LEN.to_string()),
            (INITIATOR_RECV, SEND_LEN.to_string()),
        ],
        declared: vec![
            ("MaxOutstandingUnexpectedPDUs", UNEXPECTED_MAX.to_string()),
            ("MaxAHSLength", AHS_MAX.to_string()),
        ],
        heard: &[SOLICITED_ONLY, HELLO_REQUIRED],
        lengths: Some(&SegmentLengths {
            receive: TARGET_RECV,
            send: INITIATOR_RECV,
            default: 8192,
        }),
        // Digests are for connections without checks of their own, which RDMA has.
        reliable: true,
    }
}

/// What a login agreed on beside `SessionParams`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Agreed {
    /// The initiator said so, or said otherwise, or nothing.
    pub(crate) solicited_only: Option<bool>,
    /// A Hello exchange opens full feature phase.
    pub(crate) hello: bool,
    /// The initiator does not want RDMA.
    pub(crate) refused: bool,
}

impl Agreed {
    pub(crate) fn of(params: &SessionParams) -> Self {
        let said = |key| {
            let (_, value) = params.transport.iter().find(|(name, _)| *name == key)?;
            Some(value == "Yes")
        };
        Self {
            solicited_only: said(SOLICITED_ONLY),
            hello: said(HELLO_REQUIRED) == Some(true),
            refused: said(RDMA_EXTENSIONS) == Some(false),
        }
    }
}

/// Messages for which no command window answers: NOP-Out, immediate commands, task management.
pub(crate) const UNEXPECTED_MAX: usize = 32;
/// Longest data segment we send, bytes. Text and sense data are shorter.
const SEND_LEN: usize = 8192;
/// All additional header segments of a command, bytes: an extended CDB and a read length need 268.
const AHS_MAX: usize = 512;
const RDMA_EXTENSIONS: &str = "RDMAExtensions";
const TARGET_RECV: &str = "TargetRecvDataSegmentLength";
const INITIATOR_RECV: &str = "InitiatorRecvDataSegmentLength";
const SOLICITED_ONLY: &str = "TaggedBufferForSolicitedDataOnly";
const HELLO_REQUIRED: &str = "iSERHelloRequired";
