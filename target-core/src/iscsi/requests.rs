//! NOP-Out and Text Requests in full feature phase (RFC 7143 §11.10, §11.18), and the NOP-In that we send ourselves.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::Bytes;
use iscsi_proto::pdu::{NopIn, NopOut, RejectReason, Request, Response, TextRequest, TextResponse};
use iscsi_proto::{Itt, Lun, Ttt};
use tracing::debug;

use super::event::{Action, CloseReason, LinkId};
use super::full_feature::FullFeature;
use super::registry::Node;
use super::text_exchange::TextStep;
use super::{Asker, answer_text};

impl FullFeature {
    /// §11.18: a ping is echoed as far as the initiator takes data; an answer to ours ends its deadline.
    pub(super) fn nop_out(
        &mut self,
        link: LinkId,
        pdu: &NopOut,
        data: &[u8],
        actions: &mut VecDeque<Action>,
    ) {
        let state = self.links.get_mut(link);
        state.keepalive.answered(pdu.ttt);
        if pdu.itt == Itt::RESERVED {
            return;
        }
        let echo = &data[..data.len().min(state.max_send())];
        let numbering = self.respond(link);
        let response = NopIn {
            lun: Lun::ZERO,
            itt: pdu.itt,
            ttt: Ttt::RESERVED,
            stat_sn: numbering.stat_sn,
            exp_cmd_sn: numbering.exp_cmd_sn,
            max_cmd_sn: numbering.max_cmd_sn,
        };
        let echo = Bytes::copy_from_slice(echo);
        self.say(link, Response::NopIn(response), echo, actions);
    }

    /// Asks a silent connection whether it lives, and gives up one that did not answer.
    pub(super) fn look_after(&mut self, link: LinkId, now: Instant, actions: &mut VecDeque<Action>) {
        let keepalive = &mut self.links.get_mut(link).keepalive;
        if keepalive.is_overdue(now) {
            let reason = CloseReason::Silent(keepalive.patience());
            return self.lose(link, reason, now, actions);
        }
        if let Some(silence) = keepalive.idle(now) {
            return self.lose(link, CloseReason::Idle(silence), now, actions);
        }
        if let Some(ttt) = keepalive.ask(now) {
            self.send_ping(link, ttt, actions);
        }
    }

    /// §11.19: a NOP-In that wants an answer does not consume a StatSN.
    pub(super) fn send_ping(&mut self, link: LinkId, ttt: Ttt, actions: &mut VecDeque<Action>) {
        let numbering = self.numbering(link);
        let nop = NopIn {
            lun: Lun::ZERO,
            itt: Itt::RESERVED,
            ttt,
            stat_sn: numbering.stat_sn,
            exp_cmd_sn: numbering.exp_cmd_sn,
            max_cmd_sn: numbering.max_cmd_sn,
        };
        actions.push_back(Action::Send(link, Response::NopIn(nop), Bytes::new()));
    }

    pub(super) fn text(
        &mut self,
        link: LinkId,
        pdu: &TextRequest,
        data: &[u8],
        node: &Node,
        actions: &mut VecDeque<Action>,
    ) {
        let answer = match self.links.get_mut(link).text.request(pdu, data) {
            TextStep::More(ttt) => {
                return self.send_text(link, pdu, (false, false), ttt, Vec::new(), actions);
            }
            TextStep::GoOn => None,
            TextStep::Refused(why) => {
                debug!("{why}");
                return self.refuse_text(link, pdu, actions);
            }
            TextStep::Complete(text) => match self.answer(link, &text, node, actions) {
                Some(answer) => Some(answer),
                None => return self.refuse_text(link, pdu, actions),
            },
        };
        let state = self.links.get_mut(link);
        let max_send = state.max_send();
        let segment = state.text.segment(pdu, answer, max_send);
        let flags = (segment.is_final, segment.continues);
        self.send_text(link, pdu, flags, segment.ttt, segment.text, actions);
    }

    fn refuse_text(&mut self, link: LinkId, pdu: &TextRequest, actions: &mut VecDeque<Action>) {
        let request = Request::Text(pdu.clone());
        self.refuse(link, &request, RejectReason::ProtocolError, actions);
    }

    /// The answer to a complete text; `None` when it cannot be taken apart.
    fn answer(
        &mut self,
        link: LinkId,
        text: &[u8],
        node: &Node,
        actions: &mut VecDeque<Action>,
    ) -> Option<Vec<u8>> {
        let interfaces = node.interfaces();
        let asker = Asker {
            initiator: &self.identity.initiator,
            local: self.links.get(link).info.local,
            transport: self.links.get(link).info.transport,
            peer: self.links.get(link).info.peer.ip(),
            interfaces: &interfaces,
        };
        let nexus = self.identity.admitted.nexus.as_ref();
        let target = nexus.map(|(_, target)| &target.name);
        let outcome = answer_text(text, &node.directory(), target, &asker);
        let outcome = outcome
            .inspect_err(|error| debug!(%error, "a Text Request is refused"))
            .ok()?;
        if let Some(len) = outcome.max_send_data_segment_len {
            let params = &mut self.links.get_mut(link).params;
            params.max_send_data_segment_len = len;
            actions.push_back(Action::Enable(link, params.clone()));
        }
        Some(outcome.text)
    }

    /// `flags` are F and C.
    fn send_text(
        &mut self,
        link: LinkId,
        pdu: &TextRequest,
        flags: (bool, bool),
        ttt: Ttt,
        text: Vec<u8>,
        actions: &mut VecDeque<Action>,
    ) {
        let numbering = self.respond(link);
        let response = TextResponse {
            is_final: flags.0,
            continues: flags.1,
            lun: Lun::ZERO,
            itt: pdu.itt,
            ttt,
            stat_sn: numbering.stat_sn,
            exp_cmd_sn: numbering.exp_cmd_sn,
            max_cmd_sn: numbering.max_cmd_sn,
        };
        self.say(link, Response::Text(response), text.into(), actions);
    }
}
