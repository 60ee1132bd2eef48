//! The keys of RFC 7145 §6, as data for the login, and what came of them.

use target_core::iscsi::{SegmentLengths, SessionParams, SessionType, TransportKeys};

/// Longest data segment we take, bytes: with its headers a message fills a block of 16 KiB.
pub(crate) const RECEIVE_LEN: usize = 15 * 1024;

/// What an iSER connection negotiates beside the keys of RFC 7143, with so many receives for commands and their data.
pub(crate) fn transport_keys(room: u16) -> TransportKeys {
    TransportKeys {
        values: vec![
            (RDMA_EXTENSIONS, "Yes".to_owned()),
            (TARGET_RECV, RECEIVE_LEN.to_string()),
            (INITIATOR_RECV, SEND_LEN.to_string()),
        ],
        declared: vec![
            (UNEXPECTED, UNEXPECTED_MAX.to_string()),
            ("MaxAHSLength", AHS_MAX.to_string()),
        ],
        heard: &[SOLICITED_ONLY, HELLO_REQUIRED],
        lengths: Some(&SegmentLengths {
            receive: TARGET_RECV,
            send: INITIATOR_RECV,
            default: 8192,
        }),
        room: Some(room),
        // Digests are for connections without checks of their own, which RDMA has.
        reliable: true,
    }
}

/// What a login agreed on beside `SessionParams`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Agreed {
    /// The initiator said so, or said otherwise, or nothing.
    pub(crate) solicited_only: Option<bool>,
    pub(crate) hello: HelloRule,
    /// Messages that the initiator does not ask for and takes at once; `None` without a limit (§6.7).
    pub(crate) unexpected_max: Option<usize>,
    /// RDMA may be used: both ends have said so. There is none in a discovery session, and nothing to be said (§5.1, §6.3).
    pub(crate) rdma: bool,
}

/// What the initiator said of the iSER Hello exchange (§5.1.3, §6.10).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum HelloRule {
    /// Yes: it comes first.
    Due,
    /// Nothing: it may come first.
    Allowed,
    /// No.
    Forbidden,
}

impl Agreed {
    pub(crate) fn of(params: &SessionParams) -> Self {
        let said = |key| {
            let (_, value) = params.transport.iter().find(|(name, _)| *name == key)?;
            Some(value.as_str())
        };
        let yes = |key| said(key).map(|value| value == "Yes");
        let discovery = params.session_type == SessionType::Discovery;
        Self {
            solicited_only: yes(SOLICITED_ONLY),
            hello: match yes(HELLO_REQUIRED) {
                Some(true) => HelloRule::Due,
                None if !discovery => HelloRule::Allowed,
                Some(false) | None => HelloRule::Forbidden,
            },
            unexpected_max: said(UNEXPECTED)
                .and_then(|value| value.parse().ok())
                .filter(|max| *max > 0),
            rdma: discovery || yes(RDMA_EXTENSIONS) == Some(true),
        }
    }
}

/// Messages for which no command window answers (§8.1.1.3): NOP-Out, immediate commands, task management.
pub(crate) const UNEXPECTED_MAX: usize = 32;
/// Longest data segment we send, bytes. Text and sense data are shorter.
const SEND_LEN: usize = 8192;
/// All additional header segments of a command, bytes: an extended CDB and a read length need 268.
const AHS_MAX: usize = 512;
const UNEXPECTED: &str = "MaxOutstandingUnexpectedPDUs";
const RDMA_EXTENSIONS: &str = "RDMAExtensions";
const TARGET_RECV: &str = "TargetRecvDataSegmentLength";
const INITIATOR_RECV: &str = "InitiatorRecvDataSegmentLength";
const SOLICITED_ONLY: &str = "TaggedBufferForSolicitedDataOnly";
const HELLO_REQUIRED: &str = "iSERHelloRequired";
