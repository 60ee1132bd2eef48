//! What running commands say, turned into PDUs: Data-In, R2T, and how a command ends (RFC 7143 §11.4, §11.7).

use std::collections::VecDeque;
use std::time::Instant;

use bytes::Bytes;
use iscsi_proto::pdu::{Residual, ScsiCommand, ScsiResponse, ScsiResponseCode};
use iscsi_proto::{Itt, Lun};

use super::event::{Action, LinkId};
use super::full_feature::FullFeature;
use super::snack::LOOKS;
use super::tasks::{HeldPut, Origin, Task};
use crate::datamover::{FinalStatus, GetData, Numbering, PutData};
use crate::scsi::{Outcome, Sense, Status};
use crate::transfer::TaskEvent;

impl FullFeature {
    /// An event of a task that was aborted meanwhile finds no task, and is dropped with its buffer.
    pub(super) fn task_event(&mut self, event: TaskEvent, now: Instant, actions: &mut VecDeque<Action>) {
        if let Some((itt, task)) = self.tasks.by_id(event.task())
            && let Some(adrift) = &mut task.adrift
        {
            match event {
                TaskEvent::Done {
                    outcome: Outcome::Aborted,
                    ..
                } => self.aborted_adrift(itt, now, actions),
                event => adrift.hear(event),
            }
            return;
        }
        match event {
            TaskEvent::Get {
                task,
                offset,
                buf,
                filled,
                reply,
            } => {
                let Some((itt, task)) = self.tasks.by_id(task) else {
                    return;
                };
                let (link, lun) = (task.link, task.lun);
                let get = GetData {
                    itt,
                    lun,
                    offset,
                    buf,
                    filled,
                    numbering: self.numbering(link),
                };
                let patience = self.limits.data_out_timeout;
                self.tasks.await_data(itt, reply, now, patience);
                if self.params.error_recovery_level > 0 {
                    self.tasks.look_after(now, patience / LOOKS);
                }
                actions.push_back(Action::Get(link, get));
            }
            TaskEvent::Put {
                task,
                offset,
                buf,
                is_last,
                budget,
            } => {
                let Some((itt, task)) = self.tasks.by_id(task) else {
                    return;
                };
                let (link, lun) = (task.link, task.lun);
                let put = HeldPut { offset, buf, budget };
                // Only a piece that nothing but the end follows may be held back: a task that waits for its share of
                // the bytes in flight must not be what keeps a share from coming free.
                if is_last {
                    task.held = Some(put);
                } else {
                    task.missing = task
                        .missing
                        .saturating_sub(u32::try_from(put.buf.len()).unwrap_or(u32::MAX));
                    let put = self.put(link, itt, lun, put, None);
                    actions.push_back(Action::Put(link, put));
                }
            }
            TaskEvent::Done { task, outcome } => {
                let Some(itt) = self.tasks.by_id(task).map(|(itt, _)| itt) else {
                    // One that was aborted is out of the store at last.
                    self.abandoned = self.abandoned.saturating_sub(1);
                    return;
                };
                let Some(task) = self.tasks.remove(itt) else {
                    return;
                };
                self.task_ended(task.immediate);
                self.end(itt, task, &outcome, actions);
                self.end_if_due(now, actions);
            }
        }
    }

    /// Ends a command that never reached the device. Nothing of its data moves (§11.4.5).
    pub(super) fn fail_at_once(
        &mut self,
        pdu: &ScsiCommand,
        status: Status,
        sense: Option<Sense>,
        actions: &mut VecDeque<Action>,
    ) {
        let Some(task) = self.tasks.remove(pdu.itt) else {
            return;
        };
        self.task_ended(task.immediate);
        let residual = match pdu.expected_len {
            0 => Residual::None,
            len => Residual::Underflow(len),
        };
        let outcome = Outcome::Status {
            status,
            sense,
            residual,
        };
        self.end(pdu.itt, task, &outcome, actions);
    }

    fn end(&mut self, itt: Itt, mut task: Task, outcome: &Outcome, actions: &mut VecDeque<Action>) {
        let (link, held, origin) = (task.link, task.held.take(), task.origin());
        match *outcome {
            Outcome::Status {
                status: Status::Good,
                residual,
                ..
            } => match held {
                // GOOD rides on the last Data-In (§11.7.3), unless both may be asked for again, by SNACKs of their own.
                Some(put) if self.params.error_recovery_level == 0 => {
                    let last = FinalStatus {
                        status: Status::Good as u8,
                        residual,
                    };
                    let put = self.put(link, itt, task.lun, put, Some(last));
                    actions.push_back(Action::Put(link, put));
                }
                held => {
                    if let Some(put) = held {
                        let put = self.put(link, itt, task.lun, put, None);
                        actions.push_back(Action::Put(link, put));
                    }
                    let response = scsi_response(itt, Status::Good, residual, self.respond(link));
                    self.say_status(link, response, Bytes::new(), origin, actions);
                }
            },
            Outcome::Status {
                status,
                sense,
                residual,
            } => {
                if let Some(put) = held {
                    let put = self.put(link, itt, task.lun, put, None);
                    actions.push_back(Action::Put(link, put));
                }
                let data = sense.map_or_else(Bytes::new, |sense| sense_segment(&sense));
                let response = scsi_response(itt, status, residual, self.respond(link));
                self.say_status(link, response, data, origin, actions);
            }
            // Aborted by another nexus: the initiator hears of it by a unit attention, not by a status.
            Outcome::Aborted => return actions.push_back(Action::Release(link, itt)),
        }
        actions.push_back(Action::End(link, itt));
    }

    /// The status of a task that was aborted although its initiator did not ask for that. `missing` bytes of its data
    /// did not move.
    pub(super) fn respond_aborted(
        &mut self,
        link: LinkId,
        itt: Itt,
        missing: u32,
        origin: Origin,
        actions: &mut VecDeque<Action>,
    ) {
        let numbering = self.respond(link);
        let (response, data) = aborted(itt, missing, numbering);
        self.say_status(link, response, data, origin, actions);
    }

    fn put(&mut self, link: LinkId, itt: Itt, lun: Lun, put: HeldPut, last: Option<FinalStatus>) -> PutData {
        let HeldPut { offset, buf, budget } = put;
        let numbering = if last.is_some() {
            self.respond(link)
        } else {
            self.numbering(link)
        };
        PutData {
            itt,
            lun,
            offset,
            buf,
            last,
            numbering,
            budget,
        }
    }
}

/// ABORTED COMMAND with its sense data; `missing` bytes did not move.
pub(super) fn aborted(itt: Itt, missing: u32, numbering: Numbering) -> (ScsiResponse, Bytes) {
    let residual = match missing {
        0 => Residual::None,
        len => Residual::Underflow(len),
    };
    let response = scsi_response(itt, Status::CheckCondition, residual, numbering);
    (response, sense_segment(&Sense::ABORTED_COMMAND))
}

fn scsi_response(itt: Itt, status: Status, residual: Residual, numbering: Numbering) -> ScsiResponse {
    ScsiResponse {
        itt,
        response: ScsiResponseCode::CompletedAtTarget,
        status: status as u8,
        residual,
        bidi_read_residual: Residual::None,
        snack_tag: 0,
        stat_sn: numbering.stat_sn,
        exp_cmd_sn: numbering.exp_cmd_sn,
        max_cmd_sn: numbering.max_cmd_sn,
        // The mover counts the PDUs it made.
        exp_data_sn: 0,
    }
}

/// SenseLength and sense data (§11.4.7.1).
fn sense_segment(sense: &Sense) -> Bytes {
    let sense = sense.encode(sense.descriptor_format);
    let mut data = Vec::with_capacity(sense.len() + 2);
    data.extend(
        u16::try_from(sense.len())
            .expect("sense data are at most 252 bytes")
            .to_be_bytes(),
    );
    data.extend(sense);
    data.into()
}
