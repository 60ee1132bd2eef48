//! The commands of one session that have not been answered, by initiator task tag.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use backstores::IoBuf;
use iscsi_proto::pdu::ScsiCommand;
use iscsi_proto::{Itt, Lun, Sn};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::event::LinkId;
use super::reassign::Adrift;
use super::snack::LOOKS;
use crate::scsi::Sense;
use crate::transfer::{AbortSignal, TaskId};

/// The table. Its size is bounded by the command window and the limit of immediate commands.
///
/// Ordered by tag: whatever is done to several tasks is done in the same order in every run.
#[derive(Debug, Default)]
pub(super) struct TaskTable {
    tasks: BTreeMap<u32, Task>,
    /// Counts tasks, so that no identifier comes twice.
    started: u32,
    immediate: usize,
    /// When to look for a task that waits for Data-Out in vain; `None` while none waits.
    look_for_stuck: Option<Instant>,
    /// When to look for tasks whose Data-Out may have been lost; `None` while none waits, and always at level 0.
    look_for_waiting: Option<Instant>,
    /// When a wish for Data-Out was last fulfilled.
    data_came: Option<Instant>,
}

/// A command under way.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) id: TaskId,
    /// Its connection: data and status go by no other (§4.2.5).
    pub(super) link: LinkId,
    /// Its connection is gone, and it has no other yet.
    pub(super) adrift: Option<Box<Adrift>>,
    pub(super) cmd_sn: Sn,
    /// Bytes that were announced and have not moved, of a task with Data-In.
    pub(super) missing: u32,
    pub(super) lun: Lun,
    pub(super) immediate: bool,
    pub(super) abort: AbortSignal,
    /// The last piece of Data-In, held back until it is known how the command ended.
    pub(super) held: Option<HeldPut>,
    get: Option<PendingGet>,
}

/// What task management goes by, of a task or of the status that it left.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Origin {
    pub(super) lun: Lun,
    cmd_sn: Sn,
    immediate: bool,
}

/// A piece of Data-In that has not been submitted.
#[derive(Debug)]
pub(super) struct HeldPut {
    pub(super) offset: u32,
    pub(super) buf: IoBuf,
    pub(super) budget: Option<OwnedSemaphorePermit>,
}

/// A task whose Data-Out does not come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct StuckTask {
    pub(super) itt: Itt,
    pub(super) link: LinkId,
    pub(super) waited: Duration,
}

#[derive(Debug)]
struct PendingGet {
    reply: oneshot::Sender<Result<IoBuf, Sense>>,
    since: Instant,
}

impl Task {
    pub(super) fn origin(&self) -> Origin {
        Origin {
            lun: self.lun,
            cmd_sn: self.cmd_sn,
            immediate: self.immediate,
        }
    }
}

impl Origin {
    /// Whether the command was sent behind a request with this CmdSN. Of one for immediate delivery nobody can tell.
    pub(super) fn overtook(&self, cmd_sn: Sn) -> bool {
        !self.immediate && !self.cmd_sn.precedes(cmd_sn)
    }
}

impl TaskTable {
    /// Enters a command. Its tag is in use by no other.
    pub(super) fn start(&mut self, link: LinkId, pdu: &ScsiCommand) -> (TaskId, AbortSignal) {
        let (itt, lun, immediate) = (pdu.itt, pdu.lun, pdu.immediate);
        self.started = self.started.wrapping_add(1);
        // The tag in the low half leads back to the entry; the count above tells a tag's tasks apart.
        let id = TaskId(u64::from(self.started) << 32 | u64::from(itt.0));
        let abort = AbortSignal::default();
        let task = Task {
            id,
            link,
            adrift: None,
            cmd_sn: pdu.cmd_sn,
            missing: pdu.expected_len,
            lun,
            immediate,
            abort: abort.clone(),
            held: None,
            get: None,
        };
        let other = self.tasks.insert(itt.0, task);
        debug_assert!(other.is_none(), "a command with a tag in use is rejected");
        self.immediate += usize::from(immediate);
        (id, abort)
    }

    /// The task of an event, unless it was removed meanwhile.
    pub(super) fn by_id(&mut self, id: TaskId) -> Option<(Itt, &mut Task)> {
        let itt = itt_of(id);
        let task = self.tasks.get_mut(&itt.0).filter(|task| task.id == id)?;
        Some((itt, task))
    }

    /// The task with this tag.
    pub(super) fn get(&self, itt: Itt) -> Option<&Task> {
        self.tasks.get(&itt.0)
    }

    /// Takes a task out.
    pub(super) fn remove(&mut self, itt: Itt) -> Option<Task> {
        let task = self.tasks.remove(&itt.0)?;
        self.immediate -= usize::from(task.immediate);
        Some(task)
    }

    /// A task's connection is gone.
    pub(super) fn set_adrift(&mut self, itt: Itt, adrift: Adrift) {
        if let Some(task) = self.tasks.get_mut(&itt.0) {
            task.adrift = Some(Box::new(adrift));
        }
    }

    /// A task without a connection gets another; its patience for Data-Out begins anew.
    pub(super) fn take_up(
        &mut self,
        itt: Itt,
        link: LinkId,
        now: Instant,
        patience: Duration,
    ) -> Option<Adrift> {
        let task = self.tasks.get_mut(&itt.0)?;
        let adrift = task.adrift.take()?;
        task.link = link;
        if let Some(get) = &mut task.get {
            get.since = now;
            // Nobody looks for tasks that are adrift.
            self.look_for_stuck.get_or_insert(now + patience);
            self.look_for_waiting.get_or_insert(now + patience / LOOKS);
        }
        Some(*adrift)
    }

    /// Until when tasks without a connection are kept.
    pub(super) fn adrift_until(&self) -> Option<Instant> {
        let adrift = self.tasks.values().filter_map(|task| task.adrift.as_ref());
        adrift.map(|adrift| adrift.until).min()
    }

    /// Tags of the tasks that `concerns` picks.
    pub(super) fn tags(&self, concerns: impl Fn(&Task) -> bool) -> Vec<Itt> {
        self.tasks
            .iter()
            .filter(|(_, task)| concerns(task))
            .map(|(itt, _)| Itt(*itt))
            .collect()
    }

    /// A task waits for Data-Out from now on, with so much patience.
    pub(super) fn await_data(
        &mut self,
        itt: Itt,
        reply: oneshot::Sender<Result<IoBuf, Sense>>,
        now: Instant,
        patience: Duration,
    ) {
        if let Some(task) = self.tasks.get_mut(&itt.0) {
            task.get = Some(PendingGet { reply, since: now });
            self.look_for_stuck.get_or_insert(now + patience);
        }
    }

    /// Gives a task what it waits for.
    pub(super) fn deliver(&mut self, itt: Itt, result: Result<IoBuf, Sense>, now: Instant) {
        if let Some(get) = self.tasks.get_mut(&itt.0).and_then(|task| task.get.take()) {
            self.data_came = Some(now);
            // A task that ended meanwhile does not care.
            drop(get.reply.send(result));
        }
    }

    /// Some Data-Out came.
    pub(super) fn data_came(&mut self, now: Instant) {
        self.data_came = Some(now);
    }

    /// Tasks that wait for Data-Out are to be looked after from now on.
    pub(super) fn look_after(&mut self, now: Instant, patience: Duration) {
        self.look_for_waiting.get_or_insert(now + patience);
    }

    /// When [`Self::find_waiting`] has to be asked.
    pub(super) fn look_for_waiting(&self) -> Option<Instant> {
        self.look_for_waiting
    }

    /// Once in each `patience`, the tasks that wait for Data-Out.
    pub(super) fn find_waiting(&mut self, now: Instant, patience: Duration) -> Vec<(LinkId, Itt)> {
        if self.look_for_waiting.is_none_or(|due| now < due) {
            return Vec::new();
        }
        let waits = |task: &Task| task.get.is_some() && task.adrift.is_none();
        let waiting = self.tasks.iter().filter(|(_, task)| waits(task));
        let waiting: Vec<_> = waiting.map(|(itt, task)| (task.link, Itt(*itt))).collect();
        self.look_for_waiting = (!waiting.is_empty()).then(|| now + patience);
        waiting
    }

    /// When [`Self::find_stuck`] has to be asked.
    pub(super) fn look_for_stuck(&self) -> Option<Instant> {
        self.look_for_stuck
    }

    /// The task that has waited longest, if it waits in vain: no Data-Out at all has come for `patience`, or none of
    /// its own for a few times that (a slow link serves many tasks in turn, and that is progress).
    pub(super) fn find_stuck(&mut self, now: Instant, patience: Duration) -> Option<StuckTask> {
        if self.look_for_stuck.is_none_or(|due| now < due) {
            return None;
        }
        let waiting = self
            .tasks
            .iter()
            .filter(|(_, task)| task.adrift.is_none())
            .filter_map(|(itt, task)| Some((Itt(*itt), task.link, task.get.as_ref()?.since)));
        let Some((itt, link, since)) = waiting.min_by_key(|(.., since)| *since) else {
            self.look_for_stuck = None;
            return None;
        };
        let progress = self.data_came.map_or(since, |came| came.max(since));
        let due = (progress + patience).min(since + patience * TURNS_TO_WAIT);
        self.look_for_stuck = Some(due);
        (due <= now).then(|| StuckTask {
            itt,
            link,
            waited: now.duration_since(since),
        })
    }

    /// Commands for immediate delivery under way.
    pub(super) fn immediate(&self) -> usize {
        self.immediate
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }
}

fn itt_of(id: TaskId) -> Itt {
    Itt(u32::try_from(id.0 & 0xffff_ffff).expect("masked to 32 bits"))
}

/// How many times the patience for Data-Out a task may wait while others get theirs.
const TURNS_TO_WAIT: u32 = 4;

#[cfg(test)]
mod tests {
    use iscsi_proto::Cid;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    fn command(itt: u32) -> ScsiCommand {
        ScsiCommand {
            immediate: false,
            is_final: true,
            read: false,
            write: false,
            attribute: iscsi_proto::pdu::TaskAttribute::Simple,
            priority: 0,
            lun: Lun::ZERO,
            itt: Itt(itt),
            expected_len: 0,
            cmd_sn: Sn(0),
            exp_stat_sn: Sn(0),
            cdb: [0; 16],
        }
    }

    fn wait(table: &mut TaskTable, itt: u32, now: Instant) -> oneshot::Receiver<Result<IoBuf, Sense>> {
        let (reply, received) = oneshot::channel();
        table.start(LinkId(0), &command(itt));
        table.await_data(Itt(itt), reply, now, PATIENCE);
        received
    }

    #[test]
    fn a_task_waits_in_vain_when_no_data_come_at_all() {
        let (mut table, begin) = (TaskTable::default(), Instant::now());
        let _received = wait(&mut table, 1, begin);
        assert_eq!(
            table.find_stuck(begin + PATIENCE - Duration::from_secs(1), PATIENCE),
            None
        );
        let stuck = table.find_stuck(begin + PATIENCE, PATIENCE).unwrap();
        assert_eq!((stuck.itt, stuck.waited), (Itt(1), PATIENCE));
    }

    #[test]
    fn a_slow_link_that_serves_others_is_given_time_but_not_for_ever() {
        let (mut table, begin) = (TaskTable::default(), Instant::now());
        let _received = wait(&mut table, 1, begin);
        let step = PATIENCE / 2;
        for other in 1..8 {
            let now = begin + step * other;
            let _served = wait(&mut table, 100 + other, now);
            table.deliver(Itt(100 + other), Ok(IoBuf::from_heap(1)), now);
            assert_eq!(table.find_stuck(now, PATIENCE), None, "after {other} others");
        }
        assert_eq!(
            table.find_stuck(begin + PATIENCE * 4, PATIENCE).unwrap().itt,
            Itt(1)
        );
    }

    #[test]
    fn nothing_is_looked_for_once_nobody_waits() {
        let (mut table, begin) = (TaskTable::default(), Instant::now());
        let _received = wait(&mut table, 1, begin);
        table.remove(Itt(1));
        assert_eq!(table.find_stuck(begin + PATIENCE, PATIENCE), None);
        assert_eq!(table.look_for_stuck(), None);
    }

    #[test]
    fn a_task_that_is_taken_up_is_looked_after_as_before() {
        let (mut table, begin) = (TaskTable::default(), Instant::now());
        let _received = wait(&mut table, 1, begin);
        table.look_after(begin, PATIENCE / LOOKS);
        table.set_adrift(Itt(1), Adrift::of(Cid(0), begin + PATIENCE * 9));
        // As long as it is adrift nobody owes it anything.
        let later = begin + PATIENCE * 2;
        assert_eq!(table.find_waiting(later, PATIENCE / LOOKS), []);
        assert_eq!(table.find_stuck(later, PATIENCE), None);
        assert!(table.take_up(Itt(1), LinkId(1), later, PATIENCE).is_some());
        let waiting = table.find_waiting(later + PATIENCE / LOOKS, PATIENCE / LOOKS);
        assert_eq!(waiting, [(LinkId(1), Itt(1))]);
        assert_eq!(
            table.find_stuck(later + PATIENCE, PATIENCE).unwrap().waited,
            PATIENCE
        );
    }

    #[test]
    fn an_event_of_a_removed_task_does_not_reach_the_next_task_with_its_tag() {
        let mut table = TaskTable::default();
        let (old, _) = table.start(LinkId(0), &command(5));
        table.remove(Itt(5));
        let (new, _) = table.start(LinkId(0), &command(5));
        assert!(table.by_id(old).is_none());
        assert!(table.by_id(new).is_some());
    }
}
