//! Data-Out of the simulated mover: R2Ts out, data in, in the order of the stream. The counterpart of what a transport
//! does; kept plain, since the simulation is about what stands above it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use iscsi_proto::pdu::{DataOut, R2t, ScsiCommand};
use iscsi_proto::{BHS_LEN, Itt, Ttt};
use target_core::datamover::{GetData, Notify};
use target_core::iscsi::SessionParams;
use target_core::scsi::Sense;

/// All tasks' Data-Out of one connection.
#[derive(Debug, Default)]
pub(crate) struct DataOutBook {
    tasks: BTreeMap<u32, Task>,
    r2ts: BTreeMap<u32, Asked>,
    swallowed: BTreeSet<u32>,
    last_ttt: u32,
    pub(crate) r2ts_due: VecDeque<R2t>,
    pub(crate) notices: VecDeque<Notify>,
}

#[derive(Debug, Default)]
struct Task {
    r2t_sn: u32,
    get: Option<Wish>,
    /// Unsolicited bytes so far, and whether more follow.
    unsolicited: Option<(Vec<u8>, bool)>,
    broken: Option<Sense>,
}

#[derive(Debug)]
struct Wish {
    get: GetData,
    asked: usize,
    outstanding: u16,
}

/// An R2T that is being answered. `at` is a place in the wish's buffer; `None` once nobody wants the data.
#[derive(Debug)]
struct Asked {
    itt: u32,
    at: Option<usize>,
    tell_release: bool,
}

impl DataOutBook {
    pub(crate) fn begin_command(&mut self, pdu: &ScsiCommand) {
        self.swallowed.remove(&pdu.itt.0);
        if pdu.write && !pdu.is_final {
            self.tasks.entry(pdu.itt.0).or_default().unsolicited = Some((Vec::new(), true));
        }
    }

    pub(crate) fn get(&mut self, get: GetData, params: &SessionParams) {
        let itt = get.itt;
        let task = self.tasks.entry(itt.0).or_default();
        task.get = Some(Wish {
            asked: get.filled,
            get,
            outstanding: 0,
        });
        self.advance(itt, params);
    }

    pub(crate) fn arrived(
        &mut self,
        bhs: [u8; BHS_LEN],
        pdu: &DataOut,
        data: &[u8],
        damaged: bool,
        params: &SessionParams,
    ) {
        if damaged {
            self.notices.push_back(Notify::DataDigestError { bhs });
        }
        if pdu.ttt == Ttt::RESERVED {
            self.unsolicited_arrived(bhs, pdu, data, damaged, params);
        } else {
            self.solicited_arrived(bhs, pdu, data, damaged, params);
        }
    }

    fn unsolicited_arrived(
        &mut self,
        bhs: [u8; BHS_LEN],
        pdu: &DataOut,
        data: &[u8],
        damaged: bool,
        params: &SessionParams,
    ) {
        let Some((have, more)) = self
            .tasks
            .get_mut(&pdu.itt.0)
            .and_then(|task| task.unsolicited.as_mut())
        else {
            if !self.swallowed.contains(&pdu.itt.0) {
                self.notices.push_back(Notify::StrayDataOut { bhs });
            } else if pdu.is_final {
                self.swallowed.remove(&pdu.itt.0);
            }
            return;
        };
        have.extend_from_slice(data);
        *more = !pdu.is_final;
        if damaged {
            return self.fail(pdu.itt);
        }
        self.notices.push_back(Notify::Unsolicited { itt: pdu.itt });
        self.advance(pdu.itt, params);
    }

    fn solicited_arrived(
        &mut self,
        bhs: [u8; BHS_LEN],
        pdu: &DataOut,
        data: &[u8],
        damaged: bool,
        params: &SessionParams,
    ) {
        let Some(asked) = self.r2ts.get_mut(&pdu.ttt.0) else {
            return self.notices.push_back(Notify::StrayDataOut { bhs });
        };
        let (itt, tell_release) = (asked.itt, asked.tell_release);
        let place = asked.at;
        let is_last = pdu.is_final;
        if let Some(at) = place {
            asked.at = Some(at + data.len());
        }
        if is_last {
            self.r2ts.remove(&pdu.ttt.0);
        }
        let Some(at) = place else {
            if is_last && tell_release && !self.r2ts.values().any(|other| other.itt == itt) {
                self.notices.push_back(Notify::Released(Itt(itt)));
            }
            return;
        };
        let wish = self.tasks.get_mut(&itt).and_then(|task| task.get.as_mut());
        let wish = wish.expect("an R2T with a place belongs to a wish");
        wish.get.buf[at..at + data.len()].copy_from_slice(data);
        wish.get.filled += data.len();
        wish.outstanding -= u16::from(is_last);
        if damaged {
            return self.fail(Itt(itt));
        }
        self.advance(Itt(itt), params);
    }

    /// The task's wish fails, and the rest of its data go nowhere.
    fn fail(&mut self, itt: Itt) {
        let Some(task) = self.tasks.get_mut(&itt.0) else {
            return;
        };
        task.broken = Some(Sense::PROTOCOL_SERVICE_CRC_ERROR);
        if task.get.take().is_some() {
            let result = Err(Sense::PROTOCOL_SERVICE_CRC_ERROR);
            self.notices.push_back(Notify::DataOut { itt, result });
        }
        self.forget_places(itt, false);
    }

    pub(crate) fn release(&mut self, itt: Itt) {
        self.forget_task(itt);
        self.forget_places(itt, true);
        if !self.r2ts.values().any(|asked| asked.itt == itt.0) {
            self.notices.push_back(Notify::Released(itt));
        }
    }

    pub(crate) fn end(&mut self, itt: Itt) {
        self.forget_task(itt);
        self.forget_places(itt, false);
    }

    /// R2Ts sent for a task.
    pub(crate) fn r2ts_sent(&self, itt: Itt) -> u32 {
        self.tasks.get(&itt.0).map_or(0, |task| task.r2t_sn)
    }

    fn forget_task(&mut self, itt: Itt) {
        if let Some(task) = self.tasks.remove(&itt.0)
            && task.unsolicited.is_some_and(|(_, more)| more)
        {
            self.swallowed.insert(itt.0);
        }
    }

    fn forget_places(&mut self, itt: Itt, tell_release: bool) {
        for asked in self.r2ts.values_mut().filter(|asked| asked.itt == itt.0) {
            asked.at = None;
            asked.tell_release = tell_release;
        }
    }

    /// Fills a wish from what came unsolicited, asks for the rest, or hands it over.
    fn advance(&mut self, itt: Itt, params: &SessionParams) {
        let Some(task) = self.tasks.get_mut(&itt.0) else {
            return;
        };
        let Some(wish) = task.get.as_mut() else { return };
        if task.broken.is_some() {
            task.get = None;
            let result = Err(Sense::PROTOCOL_SERVICE_CRC_ERROR);
            return self.notices.push_back(Notify::DataOut { itt, result });
        }
        if let Some((bytes, more)) = &mut task.unsolicited {
            if *more {
                return;
            }
            // What came unsolicited continues the immediate data, which the wish before has used up.
            let take = bytes.len().min(wish.get.buf.len() - wish.get.filled);
            let filled = wish.get.filled;
            wish.get.buf[filled..filled + take].copy_from_slice(&bytes[..take]);
            bytes.drain(..take);
            wish.get.filled += take;
            wish.asked = wish.asked.max(wish.get.filled);
        }
        let wanted = wish.get.buf.len();
        while wish.asked < wanted && wish.outstanding < params.max_outstanding_r2t.max(1) {
            let len = (wanted - wish.asked).min(params.max_burst_len as usize);
            self.last_ttt += 1;
            self.r2ts_due.push_back(R2t {
                lun: wish.get.lun,
                itt,
                ttt: Ttt(self.last_ttt),
                stat_sn: wish.get.numbering.stat_sn,
                exp_cmd_sn: wish.get.numbering.exp_cmd_sn,
                max_cmd_sn: wish.get.numbering.max_cmd_sn,
                r2t_sn: task.r2t_sn,
                offset: wish.get.offset + wish.asked as u32,
                desired_len: len as u32,
            });
            self.r2ts.insert(
                self.last_ttt,
                Asked {
                    itt: itt.0,
                    at: Some(wish.asked),
                    tell_release: false,
                },
            );
            task.r2t_sn += 1;
            wish.asked += len;
            wish.outstanding += 1;
        }
        if wish.get.filled == wanted
            && let Some(wish) = task.get.take()
        {
            let result = Ok(wish.get.buf);
            self.notices.push_back(Notify::DataOut { itt, result });
        }
    }
}
