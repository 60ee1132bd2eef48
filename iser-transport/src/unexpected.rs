//! Messages that the initiator did not ask for, of which it takes as many at once as it has declared (RFC 7145 §8.1.2).
//! Pure.

use std::collections::VecDeque;

use iscsi_proto::pdu::Response;
use iscsi_proto::{BHS_LEN, Itt, Sn, Ttt};

/// Those that the initiator has not acknowledged.
#[derive(Debug, Default)]
pub(crate) struct Unexpected {
    /// `None`: it takes any number.
    max: Option<usize>,
    outstanding: VecDeque<Outstanding>,
}

/// The initiator has no room for another one.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the initiator has not acknowledged {0} unexpected PDUs, and no more may be sent")]
pub(crate) struct TooMany(usize);

#[derive(Clone, Copy, Debug)]
struct Outstanding {
    stat_sn: Sn,
    /// Of a ping, whose answer acknowledges it too.
    ttt: Option<Ttt>,
}

impl Unexpected {
    pub(crate) fn limit(&mut self, max: Option<usize>) {
        self.max = max;
    }

    /// A response is about to be sent. Every Reject counts, also one that answers what was no task yet.
    pub(crate) fn send(&mut self, pdu: &Response) -> Result<(), TooMany> {
        let (stat_sn, ttt) = match pdu {
            Response::AsyncMessage(message) => (message.stat_sn, None),
            Response::Reject(reject) => (reject.stat_sn, None),
            Response::NopIn(nop) if nop.itt == Itt::RESERVED => (nop.stat_sn, Some(nop.ttt)),
            _ => return Ok(()),
        };
        let Some(max) = self.max else { return Ok(()) };
        let max = max.min(OUTSTANDING_MAX);
        if self.outstanding.len() >= max {
            return Err(TooMany(max));
        }
        self.outstanding.push_back(Outstanding { stat_sn, ttt });
        Ok(())
    }

    /// A PDU came; all that an initiator sends carry ExpStatSN, and those of a NOP-Out the tag of what it answers.
    pub(crate) fn received(&mut self, bhs: &[u8; BHS_LEN]) {
        let word = |at: usize| u32::from_be_bytes([bhs[at], bhs[at + 1], bhs[at + 2], bhs[at + 3]]);
        let (exp_stat_sn, ttt) = (Sn(word(28)), Ttt(word(20)));
        let answers = bhs[0] & OPCODE == NOP_OUT && ttt != Ttt::RESERVED;
        self.outstanding
            .retain(|sent| !(sent.stat_sn.precedes(exp_stat_sn) || answers && sent.ttt == Some(ttt)));
    }
}

/// Who takes more, and has not acknowledged so many, acknowledges nothing. Each of them is kept and looked at.
const OUTSTANDING_MAX: usize = 1024;
const OPCODE: u8 = 0x3f;
const NOP_OUT: u8 = 0;

#[cfg(test)]
mod tests {
    use iscsi_proto::Lun;
    use iscsi_proto::pdu::{NopIn, NopOut, Reject, RejectReason, Request};

    use super::*;

    fn reject(stat_sn: u32) -> Response {
        Response::Reject(Reject {
            reason: RejectReason::ProtocolError,
            stat_sn: Sn(stat_sn),
            exp_cmd_sn: Sn(1),
            max_cmd_sn: Sn(1),
            data_sn: 0,
        })
    }

    fn ping(itt: Itt, ttt: u32) -> Response {
        Response::NopIn(NopIn {
            lun: Lun::ZERO,
            itt,
            ttt: Ttt(ttt),
            stat_sn: Sn(9),
            exp_cmd_sn: Sn(1),
            max_cmd_sn: Sn(1),
        })
    }

    fn nop_out(exp_stat_sn: u32, ttt: Ttt) -> [u8; BHS_LEN] {
        Request::NopOut(NopOut {
            immediate: true,
            lun: Lun::ZERO,
            itt: Itt::RESERVED,
            ttt,
            cmd_sn: Sn(1),
            exp_stat_sn: Sn(exp_stat_sn),
        })
        .encode()
    }

    #[test]
    fn no_more_are_sent_than_the_initiator_takes_until_it_acknowledges_one() {
        let mut unexpected = Unexpected::default();
        unexpected.limit(Some(2));
        assert_eq!(unexpected.send(&reject(4)), Ok(()));
        assert_eq!(unexpected.send(&reject(5)), Ok(()));
        assert_eq!(unexpected.send(&reject(6)), Err(TooMany(2)));
        unexpected.received(&nop_out(4, Ttt::RESERVED));
        assert_eq!(
            unexpected.send(&reject(6)),
            Err(TooMany(2)),
            "neither is acknowledged"
        );
        unexpected.received(&nop_out(5, Ttt::RESERVED));
        assert_eq!(unexpected.send(&reject(6)), Ok(()));
        assert_eq!(unexpected.send(&reject(7)), Err(TooMany(2)));
    }

    #[test]
    fn the_answer_to_a_ping_acknowledges_it() {
        let mut unexpected = Unexpected::default();
        unexpected.limit(Some(1));
        assert_eq!(unexpected.send(&ping(Itt(3), 0xffff_ffff)), Ok(()), "an answer");
        assert_eq!(unexpected.send(&ping(Itt::RESERVED, 7)), Ok(()));
        unexpected.received(&nop_out(9, Ttt(8)));
        assert_eq!(unexpected.send(&ping(Itt::RESERVED, 8)), Err(TooMany(1)));
        unexpected.received(&nop_out(9, Ttt(7)));
        assert_eq!(unexpected.send(&ping(Itt::RESERVED, 8)), Ok(()));
    }

    #[test]
    fn of_an_initiator_that_acknowledges_nothing_a_bounded_number_is_kept_whatever_it_takes() {
        let mut unexpected = Unexpected::default();
        unexpected.limit(Some(usize::MAX));
        let mut sent = (0..10_000).map(|stat_sn| unexpected.send(&reject(stat_sn)));
        assert_eq!(sent.find(Result::is_err), Some(Err(TooMany(OUTSTANDING_MAX))));
    }

    #[test]
    fn without_a_limit_nothing_is_counted() {
        let mut unexpected = Unexpected::default();
        for stat_sn in 0..10_000 {
            assert_eq!(unexpected.send(&reject(stat_sn)), Ok(()));
        }
        assert!(unexpected.outstanding.is_empty());
    }
}
