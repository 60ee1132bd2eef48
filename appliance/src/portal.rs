//! The `--portal` syntax: `[iser:]ADDR:PORT[,group=N][,state=STATE]`. Portals with one number are one portal group, which is a
//! target port in the target port group of that number (ALUA); the state says how good a path it is at first.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::str::FromStr;

use iscsi_proto::Tpgt;
use target_core::control::Portal;
use target_core::scsi::AccessState;

use crate::error::StartError;

/// Where initiators come in, and as which path.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct PortalSpec {
    pub(crate) address: SocketAddr,
    /// Over RDMA, not TCP.
    pub(crate) over_rdma: bool,
    pub(crate) group: Tpgt,
    /// `None` when nothing is said of it here; another portal of the group may say it.
    pub(crate) state: Option<AccessState>,
}

impl PortalSpec {
    /// As discovery shows it.
    pub(crate) const fn to_portal(self) -> Portal {
        Portal {
            address: self.address,
            tpgt: self.group,
        }
    }
}

impl From<SocketAddr> for PortalSpec {
    fn from(address: SocketAddr) -> Self {
        Self {
            address,
            over_rdma: false,
            group: DEFAULT_GROUP,
            state: None,
        }
    }
}

impl FromStr for PortalSpec {
    type Err = String;

    fn from_str(spec: &str) -> Result<Self, String> {
        let mut parts = spec.split(',');
        let address = parts.next().unwrap_or_default();
        let rdma = address.strip_prefix("iser:");
        let address = rdma.unwrap_or(address);
        let mut portal = Self::from(socket_address(address)?);
        portal.over_rdma = rdma.is_some();
        for option in parts {
            match option.split_once('=') {
                Some(("group", number)) => portal.group = group(number)?,
                Some(("state", name)) => {
                    let state = STATES.iter().find(|(known, _)| *known == name);
                    let (_, state) = state.ok_or_else(|| {
                        format!("{option}: it is optimized, non-optimized, standby or unavailable")
                    })?;
                    portal.state = Some(*state);
                }
                _ => {
                    return Err(format!(
                        "{option:?} is no option; known are group=N and state=STATE"
                    ));
                }
            }
        }
        Ok(portal)
    }
}

fn socket_address(address: &str) -> Result<SocketAddr, String> {
    address.parse().map_err(|_| {
        // Linux writes the interface's name there.
        let hint = if address.contains('%') {
            "; behind the % is the number of the interface, the first word of its line in `ip link`"
        } else {
            ""
        };
        format!("{address:?} is no address of the form ADDR:PORT or [ADDR6]:PORT{hint}")
    })
}

/// The number of a portal group.
pub(crate) fn group(number: &str) -> Result<Tpgt, String> {
    let tag = number.parse().ok().filter(|tag| *tag > 0);
    tag.map(Tpgt)
        .ok_or_else(|| format!("group={number}: a number from 1 to 65535"))
}

/// The portal groups and their first states, ascending. Two states for one group are a mistake.
pub(crate) fn groups(portals: &[PortalSpec]) -> Result<BTreeMap<Tpgt, Option<AccessState>>, StartError> {
    let mut groups = BTreeMap::new();
    for portal in portals {
        let state = groups.entry(portal.group).or_insert(portal.state);
        match (*state, portal.state) {
            (Some(one), Some(other)) if one != other => {
                let problem = "the portals of one group have one state";
                return Err(StartError::option(
                    "--portal",
                    format!("group={}", portal.group.0),
                    problem,
                ));
            }
            (None, given) => *state = given,
            _ => {}
        }
    }
    Ok(groups)
}

/// The portal group of portals that name none.
pub(crate) const DEFAULT_GROUP: Tpgt = Tpgt(1);

const STATES: [(&str, AccessState); 4] = [
    ("optimized", AccessState::ActiveOptimized),
    ("non-optimized", AccessState::ActiveNonOptimized),
    ("standby", AccessState::Standby),
    ("unavailable", AccessState::Unavailable),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_portal_is_in_the_first_group_unless_it_names_another() {
        let portal = |spec: &str| spec.parse::<PortalSpec>().unwrap();
        assert_eq!(
            portal("192.0.2.1:3260"),
            PortalSpec::from("192.0.2.1:3260".parse::<SocketAddr>().unwrap())
        );
        let named = portal("[2001:db8::1]:3260,group=7,state=standby");
        assert_eq!((named.group, named.state), (Tpgt(7), Some(AccessState::Standby)));
        assert_eq!(portal("[fe80::1%2]:3260").address.to_string(), "[fe80::1%2]:3260");
        assert!(!named.over_rdma && portal("iser:192.0.2.1:3260,group=7").over_rdma);
        for (spec, part) in [
            ("here", "no address of the form"),
            ("[fe80::1%eth0]:3260", "number of the interface"),
            ("192.0.2.1:3260,group=0", "from 1 to 65535"),
            ("192.0.2.1:3260,group=65536", "from 1 to 65535"),
            ("192.0.2.1:3260,state=fast", "non-optimized"),
            ("192.0.2.1:3260,colour=blue", "no option"),
        ] {
            let message = spec.parse::<PortalSpec>().unwrap_err();
            assert!(message.contains(part), "{spec}: {message}");
        }
    }

    #[test]
    fn a_group_has_the_state_that_one_of_its_portals_names() {
        let portals = |specs: &[&str]| specs.iter().map(|spec| spec.parse().unwrap()).collect::<Vec<_>>();
        let found = groups(&portals(&[
            "192.0.2.1:3260,group=2",
            "192.0.2.2:3260,group=2,state=standby",
            "192.0.2.3:3260",
        ]));
        let expected = BTreeMap::from([(Tpgt(1), None), (Tpgt(2), Some(AccessState::Standby))]);
        assert_eq!(found.unwrap(), expected);
        let two = portals(&["192.0.2.1:3260,state=standby", "192.0.2.2:3260,state=optimized"]);
        assert!(groups(&two).unwrap_err().to_string().contains("one state"));
    }
}
