//! One iSCSI connection as a value, and the session that begins with it: events in, actions out, time handed in. A
//! switchboard; the phases do the work. A connection that joins a session of another one ends here with its login.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use super::event::{Action, CloseReason, Event, Order};
use super::full_feature::FullFeature;
use super::login_phase::{JoiningLogin, LoginPhase};
use super::{LinkInfo, Node};
use crate::datamover::Notify;

/// The connection. After [`Action::Close`] it wants nothing any more.
#[derive(Debug)]
pub struct Connection {
    node: Arc<Node>,
    phase: Phase,
    /// Bounded by what one event can cause: the tasks of the table, once each.
    actions: VecDeque<Action>,
}

#[derive(Debug)]
enum Phase {
    Login(Box<LoginPhase>),
    FullFeature(Box<FullFeature>),
    Closed,
}

impl Connection {
    /// A connection that has just been accepted.
    #[must_use]
    pub fn new(link: LinkInfo, node: Arc<Node>, now: Instant) -> Self {
        let login = LoginPhase::new(link, node.directory(), node.entropy(), now);
        Self {
            node,
            phase: Phase::Login(Box::new(login)),
            actions: VecDeque::new(),
        }
    }

    /// Takes in one event.
    pub fn handle(&mut self, now: Instant, event: Event) {
        match &mut self.phase {
            Phase::Closed => {}
            Phase::Login(login) => match event {
                Event::Notify(_, notify) => during_login(login, notify, &mut self.actions),
                Event::Admission(result) => {
                    if let Some(full) = login.admission(result, now, &mut self.actions) {
                        self.phase = Phase::FullFeature(Box::new(full));
                    }
                }
                Event::Order(order) => self.actions.push_back(Action::Close(CloseReason::Ordered(order))),
                Event::Timeout if login.deadline <= now => {
                    self.actions
                        .push_back(Action::Close(CloseReason::LoginTimeout(login.timeout())));
                }
                Event::Adopted(..)
                | Event::Join(..)
                | Event::Managed { .. }
                | Event::Snacked(..)
                | Event::Stuck(..)
                | Event::Task(_)
                | Event::Timeout => {}
            },
            Phase::FullFeature(full) => match event {
                Event::Notify(link, notify) => full.notify(link, notify, &self.node, now, &mut self.actions),
                Event::Task(event) => full.task_event(event, now, &mut self.actions),
                Event::Managed { itt, outcome } => full.managed(itt, outcome, now, &mut self.actions),
                Event::Join(link, login) => full.join(link, login, now, &mut self.actions),
                Event::Adopted(link, itt, result) => {
                    full.adopted(link, itt, result, now, &mut self.actions);
                }
                Event::Snacked(link, pdu, result) => full.snacked(link, &pdu, result, &mut self.actions),
                Event::Stuck(link, patience) => {
                    full.lose(
                        link,
                        CloseReason::ResponsesStuck(patience),
                        now,
                        &mut self.actions,
                    );
                }
                Event::Order(order) => full.order(order, now, &mut self.actions),
                Event::Timeout => full.timeout(now, &mut self.actions),
                Event::Admission(_) => {}
            },
        }
    }

    /// The next thing to do.
    pub fn poll_action(&mut self) -> Option<Action> {
        let action = self.actions.pop_front()?;
        if matches!(action, Action::Close(_)) {
            self.phase = Phase::Closed;
            self.actions.clear();
        }
        Some(action)
    }

    /// Takes the login out of a connection for which the door to another session was found. Nothing follows here.
    pub(crate) fn into_joining(self) -> Option<JoiningLogin> {
        match self.phase {
            Phase::Login(login) => JoiningLogin::of(login),
            Phase::Closed | Phase::FullFeature(_) => None,
        }
    }

    /// When [`Event::Timeout`] is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        match &self.phase {
            Phase::Login(login) => Some(login.deadline),
            Phase::FullFeature(full) => full.deadline(),
            Phase::Closed => None,
        }
    }
}

fn during_login(login: &mut LoginPhase, notify: Notify, actions: &mut VecDeque<Action>) {
    match notify {
        Notify::Control { pdu, data } => login.request(&pdu, &data, actions),
        Notify::Command { .. } => login.misplaced("SCSI Command", actions),
        Notify::Malformed { error, .. } => login.malformed(error, actions),
        Notify::Unsolicited { .. }
        | Notify::DataOut { .. }
        | Notify::OutOfPlace { .. }
        | Notify::ExpStatSn(_) => login.misplaced("SCSI Data-Out", actions),
        Notify::DataDigestError { .. } => login.misplaced("a PDU with a data digest", actions),
        // Nothing was asked to be let go of.
        Notify::Released(_) => {}
        Notify::Closed(closed) => actions.push_back(Action::Close(CloseReason::Transport(closed))),
    }
}

impl Order {
    /// Whether it leaves no time for anything.
    #[must_use]
    pub fn is_immediate(self) -> bool {
        matches!(self, Self::Close | Self::TargetReset | Self::Reinstated)
    }
}

#[cfg(test)]
mod tests;
