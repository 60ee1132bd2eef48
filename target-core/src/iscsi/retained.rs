//! Responses that the initiator has not acknowledged, kept to be sent again (RFC 7143 §4.2.2.2, §11.16) at
//! ErrorRecoveryLevel 1 and 2. ExpStatSN lets go of them.
//!
//! Bounded by [`RETAINED_MAX`] responses and [`BYTES_MAX`] bytes of their data. An honest initiator acknowledges with
//! each request, and has no more outstanding than its window; one that reaches a bound is not served on.

use std::collections::VecDeque;

use bytes::Bytes;
use iscsi_proto::pdu::{Response, ScsiResponse};
use iscsi_proto::{Itt, Sn};

use super::tasks::Origin;
use crate::datamover::{Numbering, Unsent};

/// Those of one connection, without a gap.
#[derive(Debug)]
pub(super) struct Retained {
    /// StatSN of the first.
    first: Sn,
    responses: VecDeque<Kept>,
    bytes: usize,
}

#[derive(Debug)]
struct Kept {
    pdu: Response,
    data: Bytes,
    /// Of a command's status, while another connection may take it up.
    origin: Option<Origin>,
    /// The tag has been used again: what the mover keeps under it is another task's.
    is_reused: bool,
}

impl Retained {
    /// Nothing is kept; the next response has this StatSN.
    pub(super) fn new(first: Sn) -> Self {
        Self {
            first,
            responses: VecDeque::new(),
            bytes: 0,
        }
    }

    /// Keeps the next response. With the origin of a task, if it is one's status.
    pub(super) fn keep(&mut self, pdu: Response, data: Bytes, origin: Option<Origin>) {
        self.bytes += data.len();
        self.responses.push_back(Kept {
            pdu,
            data,
            origin,
            is_reused: false,
        });
    }

    /// Whether more is unacknowledged than may be.
    pub(super) fn is_too_much(&self) -> bool {
        self.responses.len() > RETAINED_MAX || self.bytes > BYTES_MAX
    }

    /// The initiator has every response before this one. Gives the tags of the commands among them.
    pub(super) fn acknowledge(&mut self, exp_stat_sn: Sn) -> Vec<Itt> {
        let mut ended = Vec::new();
        while self.first.precedes(exp_stat_sn)
            && let Some(kept) = self.responses.pop_front()
        {
            self.first.advance();
            self.bytes -= kept.data.len();
            if let Response::ScsiResponse(response) = kept.pdu
                && !kept.is_reused
            {
                ended.push(response.itt);
            }
        }
        ended
    }

    /// A new command has this tag. Whether what the mover keeps under it is an older one's.
    pub(super) fn reuse(&mut self, itt: Itt) -> bool {
        let same = |kept: &&mut Kept| matches!(&kept.pdu, Response::ScsiResponse(pdu) if pdu.itt == itt);
        let mut found = false;
        for kept in self.responses.iter_mut().filter(same) {
            found |= !kept.is_reused;
            kept.is_reused = true;
        }
        found
    }

    /// Tasks are aborted: a status of theirs has been sent, and is nothing that another connection would take up.
    pub(super) fn abort(&mut self, concerns: impl Fn(&Origin) -> bool) {
        for kept in &mut self.responses {
            kept.origin.take_if(|origin| concerns(origin));
        }
    }

    /// Responses from `begin` on, `count` of them or, with 0, all; with both 0 all there are.
    pub(super) fn again(
        &self,
        begin: Sn,
        count: u32,
        numbering: Numbering,
    ) -> Result<Vec<(Response, Bytes)>, Unsent> {
        let all = u32::try_from(self.responses.len()).expect("bounded");
        let skipped = if begin == Sn(0) && count == 0 {
            0
        } else {
            begin.distance_from(self.first)
        };
        let left = all.checked_sub(skipped).filter(|left| *left > 0);
        let left = left.ok_or(Unsent::Unknown)?;
        let wanted = if count == 0 { left } else { count };
        if wanted > left {
            return Err(Unsent::Unknown);
        }
        let index = |n: u32| usize::try_from(n).expect("bounded");
        let again = self.responses.iter().skip(index(skipped)).take(index(wanted));
        Ok(again.map(|kept| kept.renewed(numbering)).collect())
    }

    /// The responses of commands that were not aborted.
    pub(super) fn into_commands(self) -> impl Iterator<Item = (ScsiResponse, Bytes, Origin)> {
        let kept = self.responses.into_iter().filter(|kept| !kept.is_reused);
        kept.filter_map(|kept| match kept.pdu {
            Response::ScsiResponse(response) => Some((response, kept.data, kept.origin?)),
            _ => None,
        })
    }

    /// The response of a command, if it is kept.
    pub(super) fn of_task(&self, itt: Itt) -> Option<&ScsiResponse> {
        self.responses.iter().rev().find_map(|kept| match &kept.pdu {
            Response::ScsiResponse(pdu) if pdu.itt == itt && !kept.is_reused => Some(pdu),
            _ => None,
        })
    }

    /// The same as it is sent again.
    pub(super) fn again_of_task(&self, itt: Itt, numbering: Numbering) -> Option<(Response, Bytes)> {
        let stat_sn = self.of_task(itt)?.stat_sn;
        self.again(stat_sn, 1, numbering).ok()?.pop()
    }
}

impl Kept {
    /// As it was, but for the window, which is the one of now.
    fn renewed(&self, numbering: Numbering) -> (Response, Bytes) {
        let mut pdu = self.pdu.clone();
        let window = match &mut pdu {
            Response::AsyncMessage(pdu) => (&mut pdu.exp_cmd_sn, &mut pdu.max_cmd_sn),
            Response::DataIn(pdu) => (&mut pdu.exp_cmd_sn, &mut pdu.max_cmd_sn),
            Response::Login(pdu) => (&mut pdu.exp_cmd_sn, &mut pdu.max_cmd_sn),
            Response::Logout(pdu) => (&mut pdu.exp_cmd_sn, &mut pdu.max_cmd_sn),
            Response::NopIn(pdu) => (&mut pdu.exp_cmd_sn, &mut pdu.max_cmd_sn),
            Response::R2t(pdu) => (&mut pdu.exp_cmd_sn, &mut pdu.max_cmd_sn),
            Response::Reject(pdu) => (&mut pdu.exp_cmd_sn, &mut pdu.max_cmd_sn),
            Response::ScsiResponse(pdu) => (&mut pdu.exp_cmd_sn, &mut pdu.max_cmd_sn),
            Response::TaskManagement(pdu) => (&mut pdu.exp_cmd_sn, &mut pdu.max_cmd_sn),
            Response::Text(pdu) => (&mut pdu.exp_cmd_sn, &mut pdu.max_cmd_sn),
        };
        (*window.0, *window.1) = (numbering.exp_cmd_sn, numbering.max_cmd_sn);
        (pdu, self.data.clone())
    }
}

/// Responses of one connection that may be unacknowledged.
const RETAINED_MAX: usize = 4096;
/// Their data, bytes: sense, echoes, texts, rejected headers.
const BYTES_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use iscsi_proto::pdu::{Reject, RejectReason};

    use super::*;

    fn retained(first: u32, count: u32) -> Retained {
        let mut retained = Retained::new(Sn(first));
        for n in 0..count {
            let reject = Reject {
                reason: RejectReason::ProtocolError,
                stat_sn: Sn(first).plus(n),
                exp_cmd_sn: Sn(1),
                max_cmd_sn: Sn(2),
                data_sn: 0,
            };
            retained.keep(Response::Reject(reject), Bytes::from_static(&[0; 48]), None);
        }
        retained
    }

    fn numbers(retained: &Retained, begin: u32, count: u32) -> Result<Vec<u32>, Unsent> {
        let now = Numbering {
            max_cmd_sn: Sn(77),
            ..Numbering::default()
        };
        let again = retained.again(Sn(begin), count, now)?;
        let number = |(pdu, _): &(Response, Bytes)| match pdu {
            Response::Reject(pdu) if pdu.max_cmd_sn == Sn(77) => pdu.stat_sn.0,
            other => panic!("{other:?}"),
        };
        Ok(again.iter().map(number).collect())
    }

    #[test]
    fn a_run_comes_again_with_its_old_numbers_and_the_window_of_now() {
        let retained = retained(0xffff_fffe, 4);
        assert_eq!(numbers(&retained, 0xffff_ffff, 2), Ok(vec![0xffff_ffff, 0]));
        assert_eq!(numbers(&retained, 1, 0), Ok(vec![1]));
        assert_eq!(numbers(&retained, 0, 0).map(|all| all.len()), Ok(4));
    }

    #[test]
    fn what_was_not_sent_or_is_acknowledged_does_not_come() {
        let mut retained = retained(10, 4);
        assert_eq!(numbers(&retained, 13, 2), Err(Unsent::Unknown));
        assert_eq!(numbers(&retained, 14, 0), Err(Unsent::Unknown));
        retained.acknowledge(Sn(12));
        assert_eq!(numbers(&retained, 11, 1), Err(Unsent::Unknown));
        assert_eq!(numbers(&retained, 12, 0), Ok(vec![12, 13]));
        assert_eq!(retained.bytes, 96);
    }

    #[test]
    fn an_initiator_that_acknowledges_nothing_is_noticed() {
        assert!(!retained(0, 4096).is_too_much());
        assert!(retained(0, 4097).is_too_much());
    }
}
