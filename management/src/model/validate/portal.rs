//! Portals, and addresses that are told instead of them.

use std::collections::{BTreeMap, BTreeSet};

use super::Found;
use crate::model::{AdvertisedAddress, Kind, Model, Object, Portal, Transport};

pub(super) fn check_advertised(rule: &AdvertisedAddress, found: &mut Found) {
    if let Err(problem) = rule.address.parse::<target_core::control::AdvertisedAddress>() {
        let fix = "write address:port or name:port, IPv6 addresses in brackets";
        found.add(Kind::Advertised, &rule.key(), "address", problem, fix);
    }
    if rule.portal_group == 0 {
        let fix = "use 1 to 65535";
        found.add(
            Kind::Advertised,
            &rule.key(),
            "portal_group",
            "0 is no tag of a portal group",
            fix,
        );
    }
}

pub(super) fn check_portals(model: &Model, found: &mut Found) {
    let (mut seen, mut tags) = (BTreeMap::new(), BTreeSet::new());
    for portal in model.all::<Portal>() {
        let key = portal.key();
        if portal.portal_group == 0 {
            let fix = "use 1 to 65535";
            found.add(
                Kind::Portal,
                &key,
                "portal_group",
                "0 is no tag of a portal group",
                fix,
            );
        }
        if tags.insert(portal.portal_group) && tags.len() > PORTAL_GROUPS_MAX {
            let problem = format!("is one more than {PORTAL_GROUPS_MAX} portal groups");
            let fix = "give it the tag of another portal";
            found.add(Kind::Portal, &key, "portal_group", problem, fix);
        }
        if portal.address.port() == 0 {
            found.add(
                Kind::Portal,
                &key,
                "address",
                "has no port",
                "add one; iSCSI's is 3260",
            );
        }
        let over_rdma = portal.transport == Transport::Iser;
        if let Some(other) = seen.insert((portal.address, over_rdma), key.clone()) {
            let problem = format!("portals/{other} has the same address");
            found.add(
                Kind::Portal,
                &key,
                "address",
                problem,
                "use another address or port",
            );
        }
    }
}

/// Portal groups that a target has room for.
pub(super) const PORTAL_GROUPS_MAX: usize = 64;
