//! What an initiator does next, drawn by chance: commands with their CDBs and data, and everything else.

use iscsi_proto::pdu::{Function, TaskAttribute};

use super::model::{BLOCK, Content};
use super::random::Random;

/// A SCSI command.
#[derive(Clone, Debug)]
pub(crate) struct Command {
    /// What it does.
    pub(crate) kind: Kind,
    /// CDB.
    pub(crate) cdb: [u8; 16],
    /// Bytes that the CDB calls for, to the target or from it.
    pub(crate) len: usize,
    /// Expected Data Transfer Length.
    pub(crate) announced: usize,
    /// Data-Out, as long as announced.
    pub(crate) data_out: Vec<u8>,
    /// Task attribute.
    pub(crate) attribute: TaskAttribute,
}

/// What a command does.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    /// READ of so many blocks from one on.
    Read(u64, u64),
    /// WRITE of the blocks that the announced length covers.
    Write {
        /// First block.
        lba: u64,
        /// Whole blocks that are sent.
        blocks: u64,
        /// What every block is stamped with.
        stamp: u64,
        /// FUA.
        fua: bool,
    },
    /// WRITE SAME of a run.
    WriteSame {
        /// First block.
        lba: u64,
        /// Blocks.
        blocks: u64,
        /// What each holds afterwards.
        content: Content,
    },
    /// UNMAP of a run.
    Unmap(u64, u64),
    /// SYNCHRONIZE CACHE.
    Flush,
    /// VERIFY; with the contents of the blocks when they are compared.
    Verify(u64, Vec<Content>),
    /// COMPARE AND WRITE of a run.
    CompareAndWrite {
        /// First block.
        lba: u64,
        /// What the blocks have to hold.
        expected: Vec<Content>,
        /// What every block is stamped with then.
        stamp: u64,
        /// FUA.
        fua: bool,
    },
    /// ORWRITE of zeroes: every block is read and written again, and nothing changes.
    Rewrite(u64, u64),
    /// INQUIRY or TEST UNIT READY.
    Ask,
}

/// One thing that an initiator does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Step {
    /// Sends a command.
    Command,
    /// Sends a task management request.
    Manage(Function),
    /// Pings.
    Ping,
    /// Asks about the target.
    Ask,
    /// Logs out, whatever is outstanding, and in again.
    Logout,
    /// Logs in again beside the old connection.
    Reinstate,
    /// Loses all connections, and logs in again.
    Lose,
    /// Opens another connection of the session.
    Join,
    /// Loses one of several connections.
    LoseOne,
    /// Logs one of several connections out.
    CloseOne,
    /// Says and hears nothing for long.
    FallSilent,
}

impl Step {
    /// Draws one.
    pub(crate) fn draw(random: &mut Random) -> Self {
        match random.below(1000) {
            0..820 => Self::Command,
            820..835 => Self::Ask,
            835..855 => Self::Join,
            855..865 => Self::LoseOne,
            865..880 => Self::CloseOne,
            880..910 => Self::Manage(Function::AbortTask),
            910..920 => Self::Manage(Function::AbortTaskSet),
            920..930 => Self::Manage(Function::ClearTaskSet),
            930..940 => Self::Manage(Function::LogicalUnitReset),
            940..970 => Self::Ping,
            970..978 => Self::Logout,
            978..986 => Self::Reinstate,
            986..997 => Self::Lose,
            _ => Self::FallSilent,
        }
    }
}

impl Command {
    /// Draws one. `stamp` marks what it writes; `likely` says what a block probably holds.
    pub(crate) fn draw(random: &mut Random, stamp: u64, mut likely: impl FnMut(u64) -> Content) -> Self {
        let blocks = match random.below(20) {
            0 => random.between(64, 600),
            1..4 => random.between(9, 64),
            _ => random.between(1, 8),
        };
        // Most of the time a few blocks are fought over.
        let lba = if blocks <= 8 && random.percent(80) {
            random.below(HOT)
        } else {
            random.below(CAPACITY - blocks + 1)
        };
        let mut command = match random.below(100) {
            0..36 => Self::read(lba, blocks, random.percent(10)),
            36..70 => Self::write(lba, blocks, stamp, random.percent(25)),
            70..75 => {
                // Locks are what this is for: a few blocks that many want.
                let (lba, blocks) = if random.percent(80) {
                    (random.below(2), 1)
                } else {
                    (lba, blocks.min(8))
                };
                let expected = (lba..lba + blocks).map(&mut likely).collect();
                Self::compare_and_write(lba, expected, stamp, random.percent(25))
            }
            75..77 => Self::rewrite(lba, blocks.min(8)),
            77..80 => Self::write_same(random, lba, blocks, stamp),
            80..84 => Self::unmap(lba, blocks),
            84..90 => Self::flush(),
            90..95 => {
                let compare = random.percent(50);
                let contents = (lba..lba + blocks).map(&mut likely).collect();
                Self::verify(lba, contents, compare)
            }
            _ => Self::ask(random.percent(50)),
        };
        command.announce(random);
        command.attribute = match random.below(20) {
            0 => TaskAttribute::Ordered,
            1 => TaskAttribute::HeadOfQueue,
            2 => TaskAttribute::Untagged,
            _ => TaskAttribute::Simple,
        };
        command
    }

    /// READ (16).
    #[must_use]
    pub(crate) fn read(lba: u64, blocks: u64, fua: bool) -> Self {
        let cdb = long(0x88, if fua { 0x08 } else { 0 }, lba, blocks);
        Self::new(Kind::Read(lba, blocks), cdb, blocks as usize * BLOCK, Vec::new())
    }

    /// WRITE (10).
    #[must_use]
    pub(crate) fn write(lba: u64, blocks: u64, stamp: u64, fua: bool) -> Self {
        let mut cdb = [0; 16];
        cdb[0] = 0x2a;
        cdb[1] = if fua { 0x08 } else { 0 };
        cdb[2..6].copy_from_slice(&(lba as u32).to_be_bytes());
        cdb[7..9].copy_from_slice(&(blocks as u16).to_be_bytes());
        let data: Vec<u8> = (lba..lba + blocks)
            .flat_map(|number| Content::Stamped(stamp, number).bytes())
            .collect();
        let kind = Kind::Write {
            lba,
            blocks,
            stamp,
            fua,
        };
        Self::new(kind, cdb, data.len(), data)
    }

    fn compare_and_write(lba: u64, expected: Vec<Content>, stamp: u64, fua: bool) -> Self {
        let mut cdb = long(0x89, if fua { 0x08 } else { 0 }, lba, 0);
        cdb[13] = expected.len() as u8;
        let old = expected.iter().map(|content| content.bytes());
        let new = (lba..).take(expected.len());
        let new = new.map(|number| Content::Stamped(stamp, number).bytes());
        let data: Vec<u8> = old.chain(new).flatten().collect();
        let kind = Kind::CompareAndWrite {
            lba,
            expected,
            stamp,
            fua,
        };
        Self::new(kind, cdb, data.len(), data)
    }

    fn rewrite(lba: u64, blocks: u64) -> Self {
        let data = vec![0; blocks as usize * BLOCK];
        Self::new(
            Kind::Rewrite(lba, blocks),
            long(0x8b, 0, lba, blocks),
            data.len(),
            data,
        )
    }

    fn write_same(random: &mut Random, lba: u64, blocks: u64, stamp: u64) -> Self {
        let (flags, content, data) = match random.below(3) {
            // NDOB, UNMAP, or a block of data.
            0 => (0x01, Content::Zero, Vec::new()),
            1 => (0x08, Content::Zero, Content::Zero.bytes().to_vec()),
            _ => (0, Content::Same(stamp), Content::Same(stamp).bytes().to_vec()),
        };
        let kind = Kind::WriteSame { lba, blocks, content };
        Self::new(kind, long(0x93, flags, lba, blocks), data.len(), data)
    }

    fn unmap(lba: u64, blocks: u64) -> Self {
        let mut list = vec![0, 22, 0, 16, 0, 0, 0, 0];
        list.extend(lba.to_be_bytes());
        list.extend((blocks as u32).to_be_bytes());
        list.extend([0; 4]);
        let mut cdb = [0; 16];
        cdb[0] = 0x42;
        cdb[8] = 24;
        Self::new(Kind::Unmap(lba, blocks), cdb, list.len(), list)
    }

    /// SYNCHRONIZE CACHE (10) of everything.
    #[must_use]
    pub(crate) fn flush() -> Self {
        let mut cdb = [0; 16];
        cdb[0] = 0x35;
        Self::new(Kind::Flush, cdb, 0, Vec::new())
    }

    fn verify(lba: u64, contents: Vec<Content>, compare: bool) -> Self {
        let cdb = long(0x8f, if compare { 0x02 } else { 0 }, lba, contents.len() as u64);
        if !compare {
            return Self::new(Kind::Verify(lba, Vec::new()), cdb, 0, Vec::new());
        }
        let data: Vec<u8> = contents.iter().flat_map(|content| content.bytes()).collect();
        Self::new(Kind::Verify(lba, contents), cdb, data.len(), data)
    }

    fn ask(inquiry: bool) -> Self {
        let mut cdb = [0; 16];
        if inquiry {
            cdb[0] = 0x12;
            cdb[4] = 96;
            return Self::new(Kind::Ask, cdb, 96, Vec::new());
        }
        Self::new(Kind::Ask, cdb, 0, Vec::new())
    }

    fn new(kind: Kind, cdb: [u8; 16], len: usize, data_out: Vec<u8>) -> Self {
        Self {
            kind,
            cdb,
            len,
            announced: len,
            data_out,
            attribute: TaskAttribute::Simple,
        }
    }

    /// Now and then the initiator announces more or less than the CDB calls for.
    fn announce(&mut self, random: &mut Random) {
        if !random.percent(8) || !matches!(self.kind, Kind::Read(..) | Kind::Write { .. }) {
            return;
        }
        let odd = random.between(1, 1500) as usize;
        self.announced = if random.percent(50) {
            self.len + odd
        } else {
            self.len.saturating_sub(odd)
        };
        if let Kind::Write { blocks, .. } = &mut self.kind {
            self.data_out.resize(self.announced, 0);
            *blocks = (*blocks).min((self.announced / BLOCK) as u64);
        }
    }

    /// Bytes that move when all goes well.
    #[must_use]
    pub(crate) fn moved(&self) -> usize {
        self.len.min(self.announced)
    }

    /// Whether data flow to the target.
    #[must_use]
    pub(crate) fn is_write(&self) -> bool {
        !self.data_out.is_empty()
    }

    /// Whether data flow from the target.
    #[must_use]
    pub(crate) fn is_read(&self) -> bool {
        !self.is_write() && self.announced > 0
    }
}

fn long(opcode: u8, flags: u8, lba: u64, blocks: u64) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[0] = opcode;
    cdb[1] = flags;
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb[10..14].copy_from_slice(&(blocks as u32).to_be_bytes());
    cdb
}

/// Blocks of a logical unit.
pub(crate) const CAPACITY: u64 = 2048;
/// Blocks at its beginning where most commands meet.
const HOT: u64 = 24;
