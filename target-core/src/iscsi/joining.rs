//! A connection joins a session, or takes the place of the one that had its CID (RFC 7143 §6.3.1, §6.3.4).

use std::collections::VecDeque;
use std::time::Instant;

use iscsi_proto::pdu::LoginStatus;

use super::event::{Action, CloseReason, LinkId};
use super::full_feature::FullFeature;
use super::login_phase::JoiningLogin;
use super::registry::Refusal;
use crate::datamover::Numbering;

impl FullFeature {
    pub(super) fn join(
        &mut self,
        link: LinkId,
        login: JoiningLogin,
        now: Instant,
        actions: &mut VecDeque<Action>,
    ) {
        let replaced = self.links.by_cid(login.cid());
        if let Some(refusal) = self.join_refusal(replaced.is_some()) {
            return login.refuse(link, refusal, actions);
        }
        if let Some(replaced) = replaced {
            let fate = self.fate_of_lost(now);
            self.part(replaced, fate, CloseReason::ConnectionReinstated, now, actions);
        }
        let numbering = Numbering {
            exp_cmd_sn: self.window.exp_cmd_sn(),
            max_cmd_sn: self.window.max_cmd_sn(),
            ..Numbering::default()
        };
        let joined = login.accept(link, &self.params, &self.limits, numbering, now, actions);
        if let Some(joined) = joined {
            self.leftovers.forget_connection(joined.cid);
            self.links.add(joined);
            self.orphaned = None;
        }
    }

    fn join_refusal(&self, replaces: bool) -> Option<Refusal> {
        if self.ending.is_some() {
            return Some(Refusal {
                status: LoginStatus::ServiceUnavailable,
                reason: "the session is about to be closed by the target".into(),
                fix: "log in again later".into(),
            });
        }
        let most = self.params.max_connections;
        let are_there = self.links.len() - usize::from(replaces);
        (are_there >= usize::from(most)).then(|| Refusal {
            status: LoginStatus::TooManyConnections,
            reason: format!("the session has {are_there} connections, and MaxConnections is {most}"),
            fix: "raise MaxConnections on both sides, or log in with TSIH 0; that replaces the session"
                .into(),
        })
    }
}
