//! Disks that are being formatted or sanitized by their initiators, or where that has failed.

use serde::{Deserialize, Serialize};
use target_core::scsi::ErasureView;
use utoipa::ToSchema;

use super::Control;

/// A unit whose medium is being erased, or was not erased to the end.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct ErasureStatus {
    /// Id of the logical unit.
    pub unit: String,
    /// Which of the two it is.
    pub operation: EraseOperation,
    /// How far it is, 0 to 99; left out when it has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent: Option<u8>,
}

/// Ways to erase a medium.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum EraseOperation {
    /// FORMAT UNIT.
    Format,
    /// SANITIZE.
    Sanitize,
}

impl Control {
    /// Erasures that go on or have failed, by unit.
    #[must_use]
    pub fn erasures(&self) -> Vec<ErasureStatus> {
        let units = self.units().into_iter();
        units
            .filter_map(|(id, unit)| Some(ErasureStatus::of(id, unit.erasure_view()?)))
            .collect()
    }
}

impl ErasureStatus {
    fn of(unit: String, view: ErasureView) -> Self {
        // Below 100 as long as it goes on: the progress has no value for the end.
        let percent = |progress: u16| u8::try_from(u32::from(progress) * 100 / 0x1_0000).unwrap_or(99);
        Self {
            unit,
            operation: if view.is_sanitize {
                EraseOperation::Sanitize
            } else {
                EraseOperation::Format
            },
            percent: view.progress.map(percent),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_erasure_that_goes_on_is_never_at_its_end() {
        let percent = |progress| {
            let view = ErasureView {
                is_sanitize: true,
                progress,
            };
            ErasureStatus::of("one".to_owned(), view).percent
        };
        assert_eq!(percent(Some(0)), Some(0));
        assert_eq!(percent(Some(0x8000)), Some(50));
        assert_eq!(percent(Some(u16::MAX)), Some(99));
        assert_eq!(percent(None), None);
    }
}
