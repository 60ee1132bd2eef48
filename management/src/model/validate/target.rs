//! Targets and their LUNs.

use iscsi_proto::Lun;

use super::access::check_authentication;
use super::portal::PORTAL_GROUPS_MAX;
use super::{Found, check_limits};
use crate::model::{Kind, LunMap, Model, Object, Target, Unit};

pub(super) fn check_target(model: &Model, target: &Target, found: &mut Found) {
    let key = target.key();
    let mut add = |field: &str, problem: &str, fix: &str| found.add(Kind::Target, &key, field, problem, fix);
    if target
        .alias
        .as_ref()
        .is_some_and(|alias| alias.is_empty() || alias.len() > 255 || alias.contains('\0'))
    {
        add(
            "alias",
            "is empty, longer than 255 bytes or has a zero byte",
            "shorten it or leave it out",
        );
    }
    if target.portal_groups.contains(&0) {
        add("portal_groups", "0 is no tag of a portal group", "use 1 to 65535");
    }
    let mut tags = target.portal_groups.clone();
    tags.sort_unstable();
    tags.dedup();
    if tags.len() != target.portal_groups.len() || tags.len() > PORTAL_GROUPS_MAX {
        let problem = format!("names a tag twice, or more than {PORTAL_GROUPS_MAX}");
        add(
            "portal_groups",
            &problem,
            "name each tag once, or leave portal_groups out for all",
        );
    }
    check_limits(&target.limits, (Kind::Target, &key), found);
    check_authentication(
        model,
        &target.authentication,
        (Kind::Target, &key, "authentication"),
        found,
    );
}

pub(super) fn check_lun(model: &Model, map: &LunMap, found: &mut Found) {
    let key = map.key();
    if map.lun > Lun::MAX_NUMBER {
        let problem = format!("{} is no LUN", map.lun);
        let fix = format!("use 0 to {}", Lun::MAX_NUMBER);
        found.add(Kind::Lun, &key, "lun", problem, fix);
    }
    found.reference::<Target>(model, (Kind::Lun, &key, "target"), &map.target.to_string());
    found.reference::<Unit>(model, (Kind::Lun, &key, "unit"), map.unit.as_str());
}
