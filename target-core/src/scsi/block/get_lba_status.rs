//! GET LBA STATUS (SBC-4): which runs of blocks are mapped and which are deallocated, from a given one on.
//!
//! The answer ends where the room does, or after a bounded number of looks at the store: initiators ask on from there.

use tokio::task::yield_now;

use crate::scsi::Failure;
use crate::scsi::cdb::{Cdb, LbaRange};
use crate::scsi::engine::CommandContext;
use crate::scsi::table::{CommandSpec, Needs, Offer, Operation};
use crate::transfer::Transfer;

pub(crate) const SPEC: CommandSpec = CommandSpec {
    opcode: 0x9e,
    service_action: Some(0x12),
    name: "GET LBA STATUS",
    usage: &[
        0x9e, 0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0,
    ],
    offer: Offer::Thin,
    needs: Needs::named(starting_block),
    timeout_s: 30,
    operation: Operation::GetLbaStatus,
};

pub(crate) async fn run(
    context: &CommandContext<'_>,
    cdb: Cdb<'_>,
    data: &mut Transfer,
) -> Result<(), Failure> {
    let allocation = cdb.u32_at(10) as usize;
    let room = allocation.saturating_sub(HEADER_LEN) / DESCRIPTOR_LEN;
    let runs = runs(context, room.clamp(1, MAXIMUM_DESCRIPTORS), data).await?;
    data.put_parameters(&parameters(&runs), allocation).await
}

/// Blocks that are all mapped or all deallocated.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Run {
    lba: u64,
    blocks: u32,
    mapped: bool,
}

impl Run {
    /// Takes up blocks that follow. `false` when they are of the other kind, or too many to be counted.
    fn extend(&mut self, next: Self) -> bool {
        match self.blocks.checked_add(next.blocks) {
            Some(blocks) if self.mapped == next.mapped => {
                self.blocks = blocks;
                true
            }
            Some(_) | None => false,
        }
    }
}

/// At most so many runs, without a gap.
async fn runs(context: &CommandContext<'_>, most: usize, data: &Transfer) -> Result<Vec<Run>, Failure> {
    let store = context.unit().store();
    let geometry = store.geometry();
    let block = u64::from(geometry.block_size);
    let mut lba = context.range().lba;
    let mut runs: Vec<Run> = Vec::new();
    for _ in 0..MAXIMUM_LOOKS {
        let at = lba * block;
        if at >= geometry.size {
            break;
        }
        // A look may take a while without waiting for anything.
        yield_now().await;
        data.check()?;
        let extent = store.extent(at..geometry.size).await?;
        let run = Run {
            lba,
            blocks: u32::try_from((extent.end - at) / block).unwrap_or(u32::MAX),
            mapped: extent.mapped,
        };
        lba += u64::from(run.blocks);
        if runs.last_mut().is_some_and(|last| last.extend(run)) {
            continue;
        }
        if runs.len() == most {
            break;
        }
        runs.push(run);
    }
    Ok(runs)
}

fn parameters(runs: &[Run]) -> Vec<u8> {
    let len = HEADER_LEN + runs.len() * DESCRIPTOR_LEN;
    let behind_field = u32::try_from(len - 4).expect("a bounded number of descriptors");
    let mut parameters = Vec::with_capacity(len);
    parameters.extend(behind_field.to_be_bytes());
    parameters.extend([0; 4]);
    for run in runs {
        parameters.extend(run.lba.to_be_bytes());
        parameters.extend(run.blocks.to_be_bytes());
        parameters.extend([if run.mapped { MAPPED } else { DEALLOCATED }, 0, 0, 0]);
    }
    parameters
}

/// The first block, which has to be there.
fn starting_block(cdb: Cdb<'_>, _capacity: u64) -> LbaRange {
    LbaRange {
        lba: cdb.u64_at(2),
        blocks: 1,
    }
}

/// PROVISIONING STATUS.
const MAPPED: u8 = 0;
const DEALLOCATED: u8 = 1;

const HEADER_LEN: usize = 8;
const DESCRIPTOR_LEN: usize = 16;
const MAXIMUM_DESCRIPTORS: usize = 1024;
/// Each look may cost a system call.
const MAXIMUM_LOOKS: usize = 2048;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_follow_a_header_that_counts_them() {
        let runs = [
            Run {
                lba: 0x1_0000_0002,
                blocks: 0x80,
                mapped: true,
            },
            Run {
                lba: 0x1_0000_0082,
                blocks: 1,
                mapped: false,
            },
        ];
        assert_eq!(
            parameters(&runs),
            [
                0, 0, 0, 36, 0, 0, 0, 0, //
                0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0x80, 0, 0, 0, 0, //
                0, 0, 0, 1, 0, 0, 0, 0x82, 0, 0, 0, 1, 1, 0, 0, 0,
            ]
        );
    }

    #[test]
    fn runs_grow_with_their_own_kind_as_far_as_can_be_counted() {
        let run = |blocks, mapped| Run {
            lba: 0,
            blocks,
            mapped,
        };
        let mut grown = run(2, false);
        assert!(grown.extend(run(3, false)));
        assert!(!grown.extend(run(1, true)));
        assert!(!grown.extend(run(u32::MAX, false)));
        assert_eq!(grown, run(5, false));
    }
}
