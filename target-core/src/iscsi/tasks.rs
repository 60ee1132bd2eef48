//! The commands of one connection that have not been answered, by initiator task tag.

use std::collections::HashMap;
use std::time::Instant;

use backstores::IoBuf;
use iscsi_proto::{Itt, Lun};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::scsi::Sense;
use crate::transfer::{AbortSignal, TaskId};

/// The table. Its size is bounded by the command window and the limit of immediate commands.
#[derive(Debug, Default)]
pub(super) struct TaskTable {
    tasks: HashMap<u32, Task>,
    /// Counts tasks, so that no identifier comes twice.
    started: u32,
    immediate: usize,
    waiting_for_data: usize,
}

/// A command under way.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) id: TaskId,
    pub(super) lun: Lun,
    pub(super) immediate: bool,
    pub(super) abort: AbortSignal,
    /// The latest piece of Data-In, held back until it is known whether it is the last.
    pub(super) held: Option<HeldPut>,
    get: Option<PendingGet>,
}

/// A piece of Data-In that has not been submitted.
#[derive(Debug)]
pub(super) struct HeldPut {
    pub(super) offset: u32,
    pub(super) buf: IoBuf,
    pub(super) budget: Option<OwnedSemaphorePermit>,
}

#[derive(Debug)]
struct PendingGet {
    reply: oneshot::Sender<Result<IoBuf, Sense>>,
    since: Instant,
}

impl TaskTable {
    /// Enters a command; `None` when its tag is in use.
    pub(super) fn start(&mut self, itt: Itt, lun: Lun, immediate: bool) -> Option<(TaskId, AbortSignal)> {
        if self.tasks.contains_key(&itt.0) {
            return None;
        }
        self.started = self.started.wrapping_add(1);
        // The tag in the low half leads back to the entry; the count above tells a tag's tasks apart.
        let id = TaskId(u64::from(self.started) << 32 | u64::from(itt.0));
        let abort = AbortSignal::default();
        let task = Task {
            id,
            lun,
            immediate,
            abort: abort.clone(),
            held: None,
            get: None,
        };
        self.tasks.insert(itt.0, task);
        self.immediate += usize::from(immediate);
        Some((id, abort))
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
        self.waiting_for_data -= usize::from(task.get.is_some());
        Some(task)
    }

    /// Tags of the tasks that `concerns` picks.
    pub(super) fn tags(&self, concerns: impl Fn(&Task) -> bool) -> Vec<Itt> {
        self.tasks
            .iter()
            .filter(|(_, task)| concerns(task))
            .map(|(itt, _)| Itt(*itt))
            .collect()
    }

    /// A task waits for Data-Out from now on.
    pub(super) fn await_data(
        &mut self,
        itt: Itt,
        reply: oneshot::Sender<Result<IoBuf, Sense>>,
        now: Instant,
    ) {
        if let Some(task) = self.tasks.get_mut(&itt.0) {
            self.waiting_for_data += usize::from(task.get.is_none());
            task.get = Some(PendingGet { reply, since: now });
        }
    }

    /// Data-Out came for a task that may wait for it: its patience begins anew.
    pub(super) fn data_progressed(&mut self, itt: Itt, now: Instant) {
        if let Some(get) = self.tasks.get_mut(&itt.0).and_then(|task| task.get.as_mut()) {
            get.since = now;
        }
    }

    /// Gives a task what it waits for.
    pub(super) fn deliver(&mut self, itt: Itt, result: Result<IoBuf, Sense>) {
        if let Some(get) = self.tasks.get_mut(&itt.0).and_then(|task| task.get.take()) {
            self.waiting_for_data -= 1;
            // A task that ended meanwhile does not care.
            drop(get.reply.send(result));
        }
    }

    /// The task that has waited longest for Data-Out, and since when. Cheap while none waits.
    pub(super) fn longest_wait(&self) -> Option<(Itt, Instant)> {
        if self.waiting_for_data == 0 {
            return None;
        }
        let waiting = self
            .tasks
            .iter()
            .filter_map(|(itt, task)| Some((Itt(*itt), task.get.as_ref()?.since)));
        waiting.min_by_key(|(_, since)| *since)
    }

    /// Whether any task waits for Data-Out.
    pub(super) fn is_waiting_for_data(&self) -> bool {
        self.waiting_for_data > 0
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_of_a_removed_task_does_not_reach_the_next_task_with_its_tag() {
        let mut table = TaskTable::default();
        let (old, _) = table.start(Itt(5), Lun::ZERO, false).unwrap();
        assert!(
            table.start(Itt(5), Lun::ZERO, false).is_none(),
            "the tag is in use"
        );
        table.remove(Itt(5));
        let (new, _) = table.start(Itt(5), Lun::ZERO, false).unwrap();
        assert!(table.by_id(old).is_none());
        assert!(table.by_id(new).is_some());
    }
}
