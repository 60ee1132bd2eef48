//! What an initiator does about PDUs that were lost, at ErrorRecoveryLevel 1 and 2 (RFC 7143 §7.2, §7.8, §11.16): it
//! asks for what it misses, and says again what was not heard.

use std::time::Duration;

use iscsi_proto::pdu::{DataIn, Function, NopOut, Request, ScsiResponse, Snack, SnackType};
use iscsi_proto::{Itt, Lun, Sn, Ttt};
use tokio::time::Instant;

use super::session::{Session, lun};

impl Session {
    pub(crate) fn recovers(&self) -> bool {
        self.terms.level > 0
    }

    /// Asks for a run of what is missing on a connection.
    fn snack(&mut self, leg: u16, kind: SnackType, itt: Itt, ttt: Ttt, run: (u32, u32)) {
        let unit = self.tasks.get(&itt.0).map_or(0, |task| task.unit);
        let request = Request::Snack(Snack {
            kind,
            lun: if kind == SnackType::DataAck {
                lun(unit)
            } else {
                Lun::ZERO
            },
            itt: if kind == SnackType::DataAck {
                Itt::RESERVED
            } else {
                itt
            },
            ttt,
            exp_stat_sn: self.exp_stat_sn(leg),
            begin_run: run.0,
            run_length: run.1,
        });
        self.note(format_args!("-> snack {kind:?} of {itt} on {leg}: {run:?}"));
        self.send(leg, &request, Vec::new());
    }

    /// A Data-In was taken: acknowledges it, or asks for those before it.
    pub(crate) fn after_data_in(&mut self, leg: u16, pdu: &DataIn) {
        let Some(task) = self.tasks.get_mut(&pdu.itt.0) else {
            return;
        };
        match task.first_gap() {
            Some(gap) if task.gap_asked_for.replace(gap.0) == Some(gap.0) => {}
            Some(gap) => self.snack(leg, SnackType::DataOrR2t, pdu.itt, Ttt::RESERVED, gap),
            None if pdu.acknowledge => {
                let next = task.next_data_sn();
                self.snack(leg, SnackType::DataAck, pdu.itt, pdu.ttt, (next, 0));
            }
            None => {}
        }
    }

    /// Whether all data are here that a response speaks of; asks for the rest.
    pub(crate) fn is_complete(&mut self, leg: u16, response: &ScsiResponse) -> bool {
        let Some(task) = self.tasks.get(&response.itt.0) else {
            return true;
        };
        if !task.command.is_read() {
            return true;
        }
        let next = task.next_data_sn();
        if next >= response.exp_data_sn {
            return true;
        }
        if self.falls() {
            self.fall("Data-In are missing before a response");
            return false;
        }
        let run = (next, response.exp_data_sn - next);
        self.snack(leg, SnackType::DataOrR2t, response.itt, Ttt::RESERVED, run);
        false
    }

    /// A connection was closed, and the answer to its logout did not come.
    pub(crate) fn closed_unanswered(&mut self, cid: u16) {
        let of_cid = self
            .partings
            .iter()
            .find(|(_, parting)| parting.cid == cid && parting.by == cid);
        if let Some(itt) = of_cid.map(|(itt, _)| *itt) {
            self.partings.remove(&itt);
            self.leg_is_over(cid);
        }
    }

    /// Asks for what is missing, and says again what was not answered.
    pub(crate) fn recover(&mut self) {
        let now = Instant::now();
        let cids: Vec<u16> = self.legs.iter().map(|leg| leg.cid).collect();
        for cid in cids {
            let Some(leg) = self.leg(cid).filter(|leg| now - leg.asked_at > AGAIN) else {
                continue;
            };
            leg.asked_at = now;
            if let Some((first, count)) = leg.missing() {
                self.snack(
                    cid,
                    SnackType::Status,
                    Itt::RESERVED,
                    Ttt::RESERVED,
                    (first.0, count),
                );
            }
            if !self.is_idle() {
                // Its answer, or its number alone, tells of responses that were lost behind the last that came.
                self.probe(cid);
            }
        }
        self.say_again(now);
    }

    fn probe(&mut self, leg: u16) {
        let itt = self.fresh_itt();
        let request = Request::NopOut(NopOut {
            immediate: true,
            lun: Lun::ZERO,
            itt: Itt(itt),
            ttt: Ttt::RESERVED,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn(leg),
        });
        self.fillers.insert(itt);
        self.send(leg, &request, b"ping".to_vec());
    }

    /// Numbered requests that the target has not received are sent again as they were; so are immediate ones that were
    /// not answered for long.
    fn say_again(&mut self, now: Instant) {
        let exp_cmd_sn = self.exp_cmd_sn;
        let unheard: Vec<u32> = self
            .tasks
            .iter()
            .filter(|(_, task)| !task.aborting && !task.cmd_sn.precedes(exp_cmd_sn))
            .filter(|(_, task)| now - task.said_at > AGAIN)
            // One whose connection is gone, or that may be elsewhere already, is said again when its reassignment is answered.
            .filter(|(_, task)| self.legs.iter().any(|leg| leg.cid == task.leg))
            .filter(|(_, task)| task.moving_to.is_none())
            .map(|(itt, _)| *itt)
            .collect();
        for itt in unheard {
            self.retry(itt);
        }
        // Pings and commands that were aborted on their way leave numbers to be filled.
        let numbers: Vec<(Sn, u16)> = self.under_way.iter().copied().collect();
        for (cmd_sn, leg) in numbers {
            if !self.is_command(cmd_sn) && !cmd_sn.precedes(exp_cmd_sn) {
                // Its command may have moved, and been aborted there.
                let leg = self.leg(leg).map(|leg| leg.cid);
                let leg = leg.unwrap_or_else(|| self.any_leg());
                self.fill(leg, cmd_sn);
            }
        }
        self.pings_again(now);
        self.management_again(now);
    }

    fn pings_again(&mut self, now: Instant) {
        // A ping whose number was received was answered; whether by a filler's tag or its own does not matter.
        let exp_cmd_sn = self.exp_cmd_sn;
        let filled = |cmd_sn: Sn| cmd_sn.precedes(exp_cmd_sn);
        self.pings
            .retain(|_, ping| !(filled(ping.cmd_sn) && now - ping.sent_at > AGAIN * 8));
    }

    /// Asks for task management again. It may have been done already, with its answer lost: so it is asked for under
    /// another tag, and concerns what was sent since as well.
    fn manage_again(&mut self, itt: u32, now: Instant) {
        let Some(tmf) = self.tmfs.get_mut(&itt) else {
            return;
        };
        // The next one is the one to repeat.
        tmf.said_at = now + FOR_EVER;
        let (function, unit, mut covers) = (tmf.function, tmf.unit, tmf.covers.clone());
        for covered in &covers {
            if let Some(task) = self.tasks.get_mut(covered) {
                task.may_be_gone |= function != Function::TaskReassign;
            }
        }
        if matches!(function, Function::AbortTask | Function::TaskReassign) {
            // Nor does anybody take up what is to be aborted.
            let takes_up = function == Function::TaskReassign;
            covers.retain(|covered| {
                let task = self.tasks.get(covered);
                task.is_some_and(|task| !takes_up || !task.aborting)
            });
            if covers.is_empty() {
                self.forget_tmf(itt);
                return;
            }
        } else {
            let of_unit = self.tasks.iter().filter(|(_, task)| task.unit == unit);
            covers = of_unit.map(|(itt, _)| *itt).collect();
        }
        // A task that has moved already is found where it moved to.
        let leg = self.tmfs[&itt].leg;
        let again = if self.leg(leg).is_some_and(|leg| !leg.is_closing) {
            self.manage_on(leg, function, unit, covers)
        } else {
            self.manage_tasks(function, unit, covers)
        };
        // However often it is said, the initiator has waited since it was said first.
        let sent_at = self.tmfs[&itt].sent_at;
        if let Some(tmf) = self.tmfs.get_mut(&again) {
            (tmf.repeats, tmf.sent_at) = (Some(itt), sent_at);
        }
    }

    fn management_again(&mut self, now: Instant) {
        let late: Vec<u32> = self
            .tmfs
            .iter()
            .filter(|(_, tmf)| tmf.said_at + MANAGE_AGAIN < now)
            .map(|(itt, _)| *itt)
            .collect();
        for itt in late {
            self.manage_again(itt, now);
        }
        let late: Vec<u32> = self
            .partings
            .iter()
            .filter(|(_, parting)| now - parting.said_at > MANAGE_AGAIN)
            .map(|(itt, _)| *itt)
            .collect();
        for itt in late {
            let Some(parting) = self.partings.get_mut(&itt) else {
                continue;
            };
            parting.said_at = now;
            let (leg, request) = (parting.by, parting.request.clone());
            self.send(leg, &request, Vec::new());
        }
    }
}

/// After this time what is missing is asked for again.
const AGAIN: Duration = Duration::from_millis(400);
/// After this time, longer than its answer may take, task management is asked for again.
const MANAGE_AGAIN: Duration = Duration::from_millis(1500);
const FOR_EVER: Duration = Duration::from_secs(1_000_000);
