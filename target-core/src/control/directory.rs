//! The live picture: an immutable snapshot that is swapped whole. A session takes one `Arc` and never locks.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use iscsi_proto::{IscsiName, Tpgt};

use super::{AdvertisedAddress, ChapPolicy, Network, Parameters, Target};

/// Where initiators can come in.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Portal {
    /// Listening address; the unspecified address stands for every address of its family.
    pub address: SocketAddr,
    /// Portal group it belongs to.
    pub tpgt: Tpgt,
}

/// What discovery tells initiators from one network instead of the portals' own addresses: their way in through address
/// translation or a load balancer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Advertised {
    /// Where the initiator comes from.
    pub from: Network,
    /// Portal group that is reached there.
    pub tpgt: Tpgt,
    /// Where that is.
    pub address: AdvertisedAddress,
}

/// All targets and portals.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    /// Targets by name.
    pub targets: BTreeMap<IscsiName, Arc<Target>>,
    /// Portals in the order they were given.
    pub portals: Vec<Portal>,
    /// Other addresses to tell, for some networks.
    pub advertised: Vec<Advertised>,
    /// CHAP for discovery sessions.
    pub discovery_chap: ChapPolicy,
    /// Limits of discovery sessions.
    pub discovery_parameters: Parameters,
}
