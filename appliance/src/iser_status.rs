//! Whether disks are served over RDMA, and why not: said in the log whenever it changes, kept for whoever asks.

use iser_transport::Unavailable;
use tokio::sync::watch;
#[cfg(feature = "iser")]
use tracing::info;
use tracing::warn;

/// What is known of portals over RDMA.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum IserStatus {
    /// No portal asks for it.
    Unused,
    /// A portal is open.
    #[cfg(feature = "iser")]
    Open,
    /// None can be; TCP is not affected.
    Unavailable(Unavailable),
}

/// Where it is kept: [`watch::Sender::subscribe`] and [`watch::Sender::borrow`] tell it to others.
pub(crate) type IserStatusCell = watch::Sender<IserStatus>;

/// Nothing is known yet.
pub(crate) fn cell() -> IserStatusCell {
    watch::Sender::new(IserStatus::Unused)
}

/// Changes it; a change is a line in the log.
pub(crate) fn tell(cell: &IserStatusCell, status: IserStatus) {
    let said = |status: &IserStatus| match status {
        IserStatus::Unused => {}
        #[cfg(feature = "iser")]
        IserStatus::Open => info!("iSER is available"),
        IserStatus::Unavailable(why) => warn!("iSER is unavailable, TCP is not affected: {why}"),
    };
    cell.send_if_modified(|before| {
        let changed = *before != status;
        if changed {
            said(&status);
            *before = status;
        }
        changed
    });
}
