//! A store with a planted defect, around one that keeps its promises.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use backstores::{BlockStore, Durability, Geometry, IoBuf, StoreError};

use super::defects::Defect;
use super::model::BLOCK;

/// The store.
#[derive(Debug)]
pub(crate) struct SpoiledStore {
    inner: Arc<dyn BlockStore>,
    defect: Defect,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    chances: u32,
    /// What blocks held when they were first read.
    once: HashMap<u64, Vec<u8>>,
    late: Option<(u64, Vec<u8>)>,
}

impl SpoiledStore {
    pub(crate) fn new(inner: Arc<dyn BlockStore>, defect: Defect) -> Arc<Self> {
        let state = Mutex::default();
        Arc::new(Self { inner, defect, state })
    }

    /// Whether this is the defect, and this the occasion.
    fn strikes(&self, defect: Defect) -> bool {
        if self.defect != defect {
            return false;
        }
        let mut state = self.state.lock().expect("plain data");
        state.chances += 1;
        state.chances.is_multiple_of(5)
    }

    fn remember_or_recall(&self, at: u64, buf: &mut IoBuf) {
        let recalls = self.strikes(Defect::StaleRead);
        let mut state = self.state.lock().expect("plain data");
        for (number, block) in (at / BLOCK as u64..).zip(buf.chunks_exact_mut(BLOCK)) {
            let once = state.once.entry(number).or_insert_with(|| block.to_vec());
            if recalls {
                block.copy_from_slice(once);
            }
        }
    }
}

#[async_trait]
impl BlockStore for SpoiledStore {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    async fn read(&self, at: u64, buf: IoBuf) -> Result<IoBuf, StoreError> {
        let mut buf = self.inner.read(at, buf).await?;
        if self.defect == Defect::StaleRead {
            self.remember_or_recall(at, &mut buf);
        }
        Ok(buf)
    }

    async fn write(&self, at: u64, mut buf: IoBuf, durability: Durability) -> Result<IoBuf, StoreError> {
        if self.strikes(Defect::LostWrite) {
            return Ok(buf);
        }
        if self.strikes(Defect::LateWrite) {
            self.state.lock().expect("plain data").late = Some((at, buf.to_vec()));
            return Ok(buf);
        }
        let len = buf.len();
        if len > BLOCK && self.strikes(Defect::TornWrite) {
            buf.set_len(len / BLOCK / 2 * BLOCK);
            let mut buf = self.inner.write(at, buf, durability).await?;
            buf.set_len(len);
            return Ok(buf);
        }
        if self.strikes(Defect::TornBlock) {
            buf[BLOCK / 2..BLOCK].fill(0);
        }
        if len > BLOCK && self.strikes(Defect::SwappedBlocks) {
            let (first, second) = buf.split_at_mut(BLOCK);
            first.swap_with_slice(&mut second[..BLOCK]);
        }
        let durability = match self.defect {
            Defect::IgnoredFua => Durability::Cached,
            _ => durability,
        };
        let buf = self.inner.write(at, buf, durability).await?;
        let late = self.state.lock().expect("plain data").late.take();
        if let Some((at, bytes)) = late {
            let mut late = IoBuf::from_heap(bytes.len());
            late.copy_from_slice(&bytes);
            self.inner.write(at, late, durability).await?;
        }
        Ok(buf)
    }

    async fn flush(&self) -> Result<(), StoreError> {
        match self.defect {
            Defect::IgnoredFlush => Ok(()),
            _ => self.inner.flush().await,
        }
    }

    async fn unmap(&self, range: Range<u64>) -> Result<(), StoreError> {
        match self.defect {
            Defect::UnmapKeepsData => Ok(()),
            _ => self.inner.unmap(range).await,
        }
    }

    async fn write_zeroes(&self, range: Range<u64>, durability: Durability) -> Result<(), StoreError> {
        self.inner.write_zeroes(range, durability).await
    }
}
