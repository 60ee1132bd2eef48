//! The null store: reads zeroes, forgets writes. It costs nothing, so it measures everything above it.

use std::ops::Range;

use async_trait::async_trait;

use crate::error::check_range;
use crate::{Abilities, BlockStore, Durability, Extent, Geometry, IoBuf, StoreError, StoreOp};

/// A store without a medium.
#[derive(Debug)]
pub(crate) struct NullStore {
    geometry: Geometry,
}

impl NullStore {
    pub(crate) fn new(geometry: Geometry) -> Self {
        Self { geometry }
    }
}

#[async_trait]
impl BlockStore for NullStore {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    async fn read(&self, at: u64, mut buf: IoBuf) -> Result<IoBuf, StoreError> {
        check_range(&self.geometry, StoreOp::Read, at, buf.len() as u64)?;
        buf.fill(0);
        Ok(buf)
    }

    async fn write(&self, at: u64, buf: IoBuf, _durability: Durability) -> Result<IoBuf, StoreError> {
        check_range(&self.geometry, StoreOp::Write, at, buf.len() as u64)?;
        Ok(buf)
    }

    async fn flush(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn unmap(&self, range: Range<u64>) -> Result<(), StoreError> {
        check_range(
            &self.geometry,
            StoreOp::Unmap,
            range.start,
            range.end.saturating_sub(range.start),
        )
    }

    async fn write_zeroes(&self, range: Range<u64>, _durability: Durability) -> Result<(), StoreError> {
        check_range(
            &self.geometry,
            StoreOp::WriteZeroes,
            range.start,
            range.end.saturating_sub(range.start),
        )
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            transient: true,
            ..Abilities::default()
        }
    }

    async fn extent(&self, range: Range<u64>) -> Result<Extent, StoreError> {
        Ok(Extent {
            end: range.end,
            mapped: false,
        })
    }

    async fn prefetch(&self, _range: Range<u64>) -> bool {
        true
    }
}
