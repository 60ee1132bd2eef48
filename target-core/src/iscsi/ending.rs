//! The orderly end of a session from our side (RFC 7143 §11.9): orders from outside, and how long each lets the
//! initiator go on.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;
use iscsi_proto::Lun;
use iscsi_proto::pdu::{AsyncEvent, AsyncMessage, Response};

use super::event::{Action, CloseReason, Order};
use super::full_feature::FullFeature;

/// An order that has been begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ending {
    order: Order,
    pub(super) deadline: Instant,
}

impl FullFeature {
    pub(super) fn order(&mut self, order: Order, now: Instant, actions: &mut VecDeque<Action>) {
        match order {
            Order::Logout { within } => {
                let within_s = u16::try_from(within.as_secs()).unwrap_or(u16::MAX);
                self.send_async(AsyncEvent::LogoutRequested { within_s }, actions);
                self.ending = Some(Ending {
                    order,
                    deadline: now + within,
                });
            }
            Order::Drain => {
                self.ending = Some(Ending {
                    order,
                    deadline: now + DRAIN_PATIENCE,
                });
                self.end_if_due(now, actions);
            }
            Order::Close | Order::TargetReset => self.drop_session(order, actions),
            Order::Reinstated => actions.push_back(Action::Close(CloseReason::Ordered(order))),
        }
    }

    pub(super) fn is_draining(&self) -> bool {
        self.ending.is_some_and(|ending| ending.order == Order::Drain)
    }

    /// Drops the session when its time is over, or when it drains and nothing runs any more. Returns whether it did.
    pub(super) fn end_if_due(&mut self, now: Instant, actions: &mut VecDeque<Action>) -> bool {
        let Some(Ending { order, deadline }) = self.ending else {
            return false;
        };
        let is_due = deadline <= now || (order == Order::Drain && self.tasks.is_empty());
        if is_due {
            self.drop_session(order, actions);
        }
        is_due
    }

    fn drop_session(&mut self, order: Order, actions: &mut VecDeque<Action>) {
        let event = AsyncEvent::SessionDropped {
            time_to_wait: self.params.time_to_wait,
            time_to_retain: 0,
        };
        self.send_async(event, actions);
        actions.push_back(Action::Close(CloseReason::Ordered(order)));
    }

    /// Every connection is told: the initiator may listen to any (§11.9.1).
    fn send_async(&mut self, event: AsyncEvent, actions: &mut VecDeque<Action>) {
        for link in self.links.ids() {
            let numbering = self.respond(link);
            let message = AsyncMessage {
                lun: Lun::ZERO,
                stat_sn: numbering.stat_sn,
                exp_cmd_sn: numbering.exp_cmd_sn,
                max_cmd_sn: numbering.max_cmd_sn,
                event,
            };
            self.say(link, Response::AsyncMessage(message), Bytes::new(), actions);
        }
    }
}

/// How long running commands may take to end once nothing new is begun.
const DRAIN_PATIENCE: Duration = Duration::from_secs(10);
