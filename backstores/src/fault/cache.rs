//! The volatile write cache of a [`FaultStore`](super::FaultStore): every version of every block since it was last on
//! the medium, as a real cache may write any of them out at any time. Blocks are kept one by one, so ranges should be of
//! test size.

use std::collections::BTreeMap;

use super::{Work, at_once};
use crate::{BlockStore, Durability, IoBuf, StoreError, StoreOp};

pub(super) struct Cache {
    block_size: usize,
    /// By block number, oldest version first; never empty.
    versions: BTreeMap<u64, Vec<Box<[u8]>>>,
}

impl Cache {
    pub(super) fn new(block_size: u32) -> Self {
        Self {
            block_size: block_size as usize,
            versions: BTreeMap::new(),
        }
    }

    /// Blocks that are not on the medium.
    pub(super) fn len(&self) -> usize {
        self.versions.len()
    }

    pub(super) fn block_len(&self) -> u64 {
        self.block_size as u64
    }

    /// Does an operation as a whole.
    pub(super) fn apply(&mut self, inner: &dyn BlockStore, work: Work) -> Result<Option<IoBuf>, StoreError> {
        match work {
            Work::Read { at, buf } => self.read(inner, at, buf).map(Some),
            Work::Flush => self.flush(inner).map(|()| None),
            Work::Write {
                at,
                buf,
                durability: Durability::Stable,
            } => {
                let buf = at_once(inner.write(at, buf, Durability::Stable))?;
                self.forget(at, buf.len() as u64);
                Ok(Some(buf))
            }
            Work::Clear {
                op,
                range,
                durability: Durability::Stable,
            } => {
                match op {
                    StoreOp::Unmap => at_once(inner.unmap(range.clone()))?,
                    _ => at_once(inner.write_zeroes(range.clone(), Durability::Stable))?,
                }
                self.forget(range.start, range.end - range.start);
                Ok(None)
            }
            Work::Write { .. } | Work::Clear { .. } => {
                self.change_prefix(&work, u64::MAX);
                let Work::Write { buf, .. } = work else {
                    return Ok(None);
                };
                Ok(Some(buf))
            }
        }
    }

    /// Takes up the first `bytes` of a change, in whole blocks. Other operations change nothing.
    pub(super) fn change_prefix(&mut self, work: &Work, bytes: u64) {
        let (at, len, content) = match work {
            Work::Read { .. } | Work::Flush => return,
            Work::Write { at, buf, .. } => (*at, buf.len() as u64, Some(&buf[..])),
            Work::Clear { range, .. } => (range.start, range.end.saturating_sub(range.start), None),
        };
        let first = at / self.block_len();
        for block in 0..len.min(bytes) / self.block_len() {
            let version = match content {
                Some(bytes) => bytes.chunks(self.block_size).nth(small(block)).map(Into::into),
                None => Some(vec![0; self.block_size].into()),
            };
            self.versions.entry(first + block).or_default().extend(version);
        }
    }

    /// Loses power: of each block `choose(n)` names the version that the medium has, 0 for what it had already.
    pub(super) fn lose(&mut self, inner: &dyn BlockStore, mut choose: impl FnMut(u64) -> u64) {
        for (block, versions) in std::mem::take(&mut self.versions) {
            let chosen = choose(versions.len() as u64);
            if let Some(version) = chosen.checked_sub(1).and_then(|index| versions.get(small(index))) {
                put(inner, block, version).expect("the wrapped store takes what it was made for");
            }
        }
    }

    fn read(&self, inner: &dyn BlockStore, at: u64, buf: IoBuf) -> Result<IoBuf, StoreError> {
        let mut buf = at_once(inner.read(at, buf))?;
        let first = at / self.block_len();
        let blocks = first..first + buf.len() as u64 / self.block_len();
        for (block, versions) in self.versions.range(blocks) {
            let from = small(block - first) * self.block_size;
            buf[from..from + self.block_size].copy_from_slice(versions.last().expect("never empty"));
        }
        Ok(buf)
    }

    fn flush(&mut self, inner: &dyn BlockStore) -> Result<(), StoreError> {
        while let Some(entry) = self.versions.first_entry() {
            put(inner, *entry.key(), entry.get().last().expect("never empty"))?;
            entry.remove();
        }
        at_once(inner.flush())
    }

    /// Drops the versions of blocks that are on the medium now.
    fn forget(&mut self, at: u64, len: u64) {
        let first = at / self.block_len();
        let end = first + len / self.block_len();
        self.versions.retain(|block, _| !(first..end).contains(block));
    }
}

fn put(inner: &dyn BlockStore, block: u64, content: &[u8]) -> Result<(), StoreError> {
    let mut buf = IoBuf::from_heap(content.len());
    buf.copy_from_slice(content);
    at_once(inner.write(block * content.len() as u64, buf, Durability::Stable)).map(drop)
}

fn small(number: u64) -> usize {
    usize::try_from(number).expect("a test's range fits into memory")
}
