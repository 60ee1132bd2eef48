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

impl Portal {
    /// Whether a connection to this address came in by it, with an exact match or as one of many addresses.
    fn accepts(&self, local: SocketAddr) -> Option<Match> {
        let (own, asked) = (self.address.ip().to_canonical(), local.ip().to_canonical());
        if self.address.port() != local.port() {
            None
        } else if own == asked {
            Some(Match::Exact)
        } else if own.is_unspecified() && (own.is_ipv6() || asked.is_ipv4()) {
            // "::" listens to IPv4 too.
            Some(Match::Wildcard)
        } else {
            None
        }
    }
}

/// How well an address fits a portal, best last.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Match {
    Wildcard,
    Exact,
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
    /// Portals that another transport serves, by its name in `LinkInfo`: told to those who came in by that one.
    pub other_portals: BTreeMap<&'static str, Vec<Portal>>,
    /// Other addresses to tell, for some networks.
    pub advertised: Vec<Advertised>,
    /// CHAP for discovery sessions.
    pub discovery_chap: ChapPolicy,
    /// Limits of discovery sessions.
    pub discovery_parameters: Parameters,
}

impl Directory {
    /// The portal group by which a connection to `local` reaches `target`; `None` when it came in by portals that are not
    /// the target's.
    #[must_use]
    pub fn portal_group(&self, target: &Target, local: SocketAddr) -> Option<Tpgt> {
        let portals = self.portals.iter().chain(self.other_portals.values().flatten());
        let accepting = portals.filter_map(|portal| Some((portal.accepts(local)?, portal.tpgt)));
        if accepting.clone().next().is_none() {
            return Some(target.tpgt);
        }
        let fitting = accepting.filter(|(_, tpgt)| target.device.has_port(*tpgt));
        // Of equals the first: the order of portals is the administrator's.
        let best = fitting.reduce(|best, next| if next.0 > best.0 { next } else { best });
        best.map(|(_, tpgt)| tpgt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Access;
    use crate::scsi::TargetDevice;

    fn directory(portals: &[(&str, u16)]) -> Directory {
        let portal = |(address, tpgt): &(&str, u16)| Portal {
            address: address.parse().unwrap(),
            tpgt: Tpgt(*tpgt),
        };
        Directory {
            portals: portals.iter().map(portal).collect(),
            ..Directory::default()
        }
    }

    #[test]
    fn a_connection_belongs_to_the_group_of_the_portal_it_came_by() {
        let name: IscsiName = "iqn.2024-01.org.example:a".parse().unwrap();
        let target = Target {
            device: TargetDevice::new(name.clone(), &[Tpgt(1), Tpgt(2), Tpgt(3)]),
            name,
            alias: None,
            tpgt: Tpgt(1),
            access: Access::Everyone,
            chap: ChapPolicy::Open,
            parameters: Parameters::default(),
        };
        let directory = directory(&[
            ("0.0.0.0:3260", 2),
            ("192.0.2.1:3260", 3),
            ("192.0.2.1:3261", 9),
            ("[::]:3262", 2),
        ]);
        for (local, group) in [
            ("192.0.2.1:3260", Some(3)),
            ("192.0.2.2:3260", Some(2)),
            ("[::ffff:192.0.2.2]:3260", Some(2)),
            // Another target's group, and no portal at all.
            ("192.0.2.1:3261", None),
            ("[2001:db8::1]:3260", Some(1)),
            ("192.0.2.1:3262", Some(2)),
            ("[2001:db8::1]:3262", Some(2)),
        ] {
            let found = directory.portal_group(&target, local.parse().unwrap());
            assert_eq!(found, group.map(Tpgt), "{local}");
        }
    }
}
