//! Logout (RFC 7143 §11.14): of the session, or of one connection of it, by whichever connection it is asked for.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::Bytes;
use iscsi_proto::pdu::{LogoutReason, LogoutRequest, LogoutResponse, LogoutResponseCode, Response};

use super::event::{Action, CloseReason, LinkId};
use super::full_feature::FullFeature;
use super::loss::Fate;

impl FullFeature {
    pub(super) fn logout(
        &mut self,
        link: LinkId,
        pdu: &LogoutRequest,
        now: Instant,
        actions: &mut VecDeque<Action>,
    ) {
        match pdu.reason {
            LogoutReason::CloseSession => {
                self.answer_logout(link, pdu, LogoutResponseCode::Success, actions);
                actions.push_back(Action::Close(CloseReason::LoggedOut));
            }
            LogoutReason::CloseConnection => self.close(link, pdu, now, actions),
            LogoutReason::RemoveConnectionForRecovery => self.remove(link, pdu, now, actions),
        }
    }

    /// A connection is closed, and its tasks end: also those of one that is lost already, which may be taken up still.
    fn close(&mut self, link: LinkId, pdu: &LogoutRequest, now: Instant, actions: &mut VecDeque<Action>) {
        let was_lost = self.end_adrift_of(pdu.cid, actions);
        match self.links.by_cid(pdu.cid) {
            None if was_lost => self.answer_logout(link, pdu, LogoutResponseCode::Success, actions),
            None => self.answer_logout(link, pdu, LogoutResponseCode::CidNotFound, actions),
            // A session ends with its last connection.
            Some(_) if self.links.len() == 1 => {
                self.answer_logout(link, pdu, LogoutResponseCode::Success, actions);
                actions.push_back(Action::Close(CloseReason::LoggedOut));
            }
            Some(closed) if closed == link => {
                self.answer_logout(link, pdu, LogoutResponseCode::Success, actions);
                self.part(closed, Fate::End, CloseReason::LoggedOut, now, actions);
            }
            // Once it is answered, nothing more may come on the other connection.
            Some(closed) => {
                self.part(closed, Fate::End, CloseReason::LoggedOut, now, actions);
                self.answer_logout(link, pdu, LogoutResponseCode::Success, actions);
            }
        }
    }

    /// §7.4.1: a connection is given up so that its tasks can be taken up by another.
    fn remove(&mut self, link: LinkId, pdu: &LogoutRequest, now: Instant, actions: &mut VecDeque<Action>) {
        let fate = self.fate_of_lost(now);
        let removed = self.links.by_cid(pdu.cid);
        let response = match (fate, removed) {
            (Fate::End, _) => LogoutResponseCode::RecoveryNotSupported,
            (Fate::Adrift { .. }, Some(_)) => LogoutResponseCode::Success,
            // It was noticed before that it is gone.
            (Fate::Adrift { .. }, None) if self.leftovers.has(pdu.cid) => LogoutResponseCode::Success,
            (Fate::Adrift { .. }, None) => LogoutResponseCode::CidNotFound,
        };
        let removed = removed.filter(|_| response == LogoutResponseCode::Success);
        match removed {
            Some(removed) if removed == link => {
                self.answer_logout(link, pdu, response, actions);
                self.lose(removed, CloseReason::LoggedOut, now, actions);
            }
            Some(removed) => {
                self.part(removed, fate, CloseReason::LoggedOut, now, actions);
                self.answer_logout(link, pdu, response, actions);
            }
            None => self.answer_logout(link, pdu, response, actions),
        }
    }

    fn answer_logout(
        &mut self,
        link: LinkId,
        pdu: &LogoutRequest,
        response: LogoutResponseCode,
        actions: &mut VecDeque<Action>,
    ) {
        let numbering = self.respond(link);
        let sent = LogoutResponse {
            response,
            itt: pdu.itt,
            stat_sn: numbering.stat_sn,
            exp_cmd_sn: numbering.exp_cmd_sn,
            max_cmd_sn: numbering.max_cmd_sn,
            time_to_wait: self.params.time_to_wait,
            time_to_retain: if self.params.error_recovery_level < 2 {
                0
            } else {
                self.params.time_to_retain
            },
        };
        self.say(link, Response::Logout(sent), Bytes::new(), actions);
    }
}
