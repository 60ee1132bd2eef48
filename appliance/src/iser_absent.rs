//! In place of portals over RDMA, where they are not built in: nothing listens, and whoever asks is told why.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use iser_transport::Unavailable;
use management::live::{IserPortalStatus, IserStatus};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tracing::warn;

use crate::cores::Cores;
use crate::descriptors::Descriptors;

/// Portals that nobody serves.
#[derive(Debug)]
pub(crate) struct IserPortals {
    runtime: Handle,
    wanted: Mutex<BTreeSet<SocketAddr>>,
}

/// Forgets a portal when its task is aborted.
struct Wanted(Arc<IserPortals>, SocketAddr);

impl IserPortals {
    /// Nothing of this is used.
    pub(crate) fn new(_: Arc<Cores>, _: Descriptors) -> Arc<Self> {
        Arc::new(Self {
            runtime: Handle::current(),
            wanted: Mutex::default(),
        })
    }

    /// Says why nothing is served, and leaves TCP alone.
    pub(crate) fn listen(self: &Arc<Self>, portal: SocketAddr) -> AbortHandle {
        if self.change(|wanted| wanted.insert(portal)) {
            warn!(
                "iSER is unavailable, TCP is not affected: {}",
                Unavailable::NotBuiltIn
            );
        }
        let wanted = Wanted(Arc::clone(self), portal);
        let waiting = self.runtime.spawn(async move {
            let _wanted = wanted;
            std::future::pending::<()>().await;
        });
        waiting.abort_handle()
    }

    /// That it is not there.
    pub(crate) fn status(&self) -> IserStatus {
        let portals = self.change(|wanted| wanted.clone()).into_iter();
        let portals = portals.map(|address| IserPortalStatus {
            address: address.to_string(),
            listening: false,
            problem: Some(Unavailable::NotBuiltIn.to_string()),
        });
        IserStatus {
            available: false,
            problem: Some(Unavailable::NotBuiltIn.to_string()),
            portals: portals.collect(),
        }
    }

    /// There is nothing to stop.
    pub(crate) const fn stop(&self) {}

    fn change<T>(&self, change: impl FnOnce(&mut BTreeSet<SocketAddr>) -> T) -> T {
        change(&mut self.wanted.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Wanted {
    fn drop(&mut self) {
        self.0.change(|wanted| wanted.remove(&self.1));
    }
}
