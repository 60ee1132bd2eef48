//! From the model's objects to what the target core serves: access, CHAP, parameters, the directory.

use std::collections::BTreeMap;
use std::sync::Arc;

use iscsi_proto::{IscsiName, Tpgt};
use target_core::control::{
    Access, AccessRule as CoreRule, Advertised, ChapCredential, ChapPolicy, Directory, Parameters, Portal,
    Secret,
};
use target_core::iscsi::SessionView;
use target_core::scsi::{DeviceType, LogicalUnit, SoftThreshold, UnitConfig};

use super::{Defaults, LiveDevice, LiveUnit};
use crate::model::{
    AccessRule, AdvertisedAddress, Authentication, Credential, Device, Id, Initiator, Method, Model, Name,
    Target, Transport, Unit,
};

/// The live picture of a model.
pub(super) fn directory(
    model: &Model,
    defaults: &Defaults,
    devices: &BTreeMap<IscsiName, LiveDevice>,
) -> Directory {
    let settings = model.settings();
    let parameters = parameters(&defaults.parameters, &settings.limits);
    let rules = AccessIndex::of(model);
    let targets = model
        .all::<Target>()
        .filter(|target| target.enabled)
        .filter_map(|target| {
            let live = devices.get(&target.name.0)?;
            let served = target_core::control::Target {
                name: target.name.0.clone(),
                alias: target.alias.clone(),
                tpgt: live.device.portal_groups().first().copied().unwrap_or(Tpgt(1)),
                access: rules.access(model, target),
                chap: chap(model, &target.authentication, &defaults.chap),
                parameters: self::parameters(&parameters, &target.limits),
                device: Arc::clone(&live.device),
            };
            Some((target.name.0.clone(), Arc::new(served)))
        });
    let given = defaults.portals.iter().cloned();
    let configured = |transport| {
        let portals = model.all::<crate::model::Portal>();
        let wanted = portals.filter(move |portal| portal.enabled && portal.transport == transport);
        wanted.map(|portal| Portal {
            address: portal.address,
            tpgt: Tpgt(portal.portal_group),
        })
    };
    let mut other_portals = defaults.other_portals.clone();
    other_portals
        .entry(ISER)
        .or_default()
        .extend(configured(Transport::Iser));
    // Addresses were validated with the model.
    let advertised = model.all::<AdvertisedAddress>().filter_map(|rule| {
        Some(Advertised {
            from: rule.from.0,
            tpgt: Tpgt(rule.portal_group),
            address: rule.address.parse().ok()?,
        })
    });
    Directory {
        targets: targets.collect(),
        portals: given.chain(configured(Transport::Tcp)).collect(),
        other_portals,
        advertised: defaults.advertised.iter().cloned().chain(advertised).collect(),
        discovery_chap: chap(model, &settings.discovery, &ChapPolicy::Open),
        discovery_parameters: parameters,
    }
}

/// The portal groups that lead to a target. One that names none is reached by all there are, and by those that its sessions
/// came by.
pub(super) fn portal_groups(
    model: &Model,
    target: &Target,
    defaults: &Defaults,
    sessions: &[SessionView],
) -> Vec<Tpgt> {
    let mut groups: Vec<Tpgt> = if target.portal_groups.is_empty() {
        let given = defaults.groups.iter().map(|(group, _)| *group);
        let portals = model.all::<crate::model::Portal>();
        let of_target = sessions
            .iter()
            .filter(|session| session.target.as_ref() == Some(&target.name.0));
        given
            .chain(portals.map(|portal| Tpgt(portal.portal_group)))
            .chain(of_target.filter_map(|session| session.portal_group))
            .collect()
    } else {
        target.portal_groups.iter().copied().map(Tpgt).collect()
    };
    if groups.is_empty() {
        groups.push(Tpgt(1));
    }
    groups.sort();
    groups.dedup();
    groups
}

/// Who may log in to one target.
pub(super) fn access(model: &Model, target: &Target) -> Access {
    let rules = model.access_of(&target.name);
    Access::Rules(rules.map(|rule| core_rule(model, rule)).collect())
}

/// Rules by target, so that a thousand targets do not each look through all of them.
struct AccessIndex<'a>(BTreeMap<&'a Name, Vec<&'a AccessRule>>);

impl<'a> AccessIndex<'a> {
    fn of(model: &'a Model) -> Self {
        let mut index: BTreeMap<&Name, Vec<&AccessRule>> = BTreeMap::new();
        for rule in model.all::<AccessRule>() {
            index.entry(&rule.target).or_default().push(rule);
        }
        Self(index)
    }

    fn access(&self, model: &Model, target: &Target) -> Access {
        let rules = self.0.get(&target.name).into_iter().flatten();
        Access::Rules(rules.map(|rule| core_rule(model, rule)).collect())
    }
}

fn core_rule(model: &Model, rule: &AccessRule) -> CoreRule {
    let mut names = rule.initiator.as_ref().map(|name| vec![name.0.clone()]);
    if let Some(group) = &rule.group {
        let members = model
            .all::<Initiator>()
            .filter(|initiator| initiator.groups.contains(group));
        let members: Vec<_> = members.map(|initiator| initiator.name.0.clone()).collect();
        names = Some(match names {
            Some(names) => names.into_iter().filter(|name| members.contains(name)).collect(),
            None => members,
        });
    }
    CoreRule {
        pattern: rule.pattern.as_ref().map(|pattern| pattern.0.clone()),
        names,
        network: rule.network.map(|network| network.0),
    }
}

/// Where nothing is asked for, the start's own policy holds.
fn chap(model: &Model, authentication: &Authentication, otherwise: &ChapPolicy) -> ChapPolicy {
    if authentication.method == Method::None {
        return otherwise.clone();
    }
    let credential = |id: &Id| {
        let credential = model.get::<Credential>(id.as_str())?;
        Some(ChapCredential {
            name: credential.name.clone(),
            secret: Secret::new(credential.secret.as_ref()?.expose().as_bytes().to_vec()),
        })
    };
    let own = authentication.mutual.as_ref().and_then(credential);
    let others = ChapPolicy::Required {
        accepted: authentication.credentials.iter().filter_map(credential).collect(),
        own: own.clone(),
    };
    let individual = model.all::<Initiator>().filter_map(|initiator| {
        let accepted = vec![credential(initiator.credential.as_ref()?)?];
        let own = own.clone();
        Some((initiator.name.0.clone(), ChapPolicy::Required { accepted, own }))
    });
    let rules: BTreeMap<_, _> = individual.collect();
    if rules.is_empty() {
        return others;
    }
    ChapPolicy::Individual {
        rules,
        others: Box::new(others),
    }
}

/// Values were validated with the model; one that is not understood all the same changes nothing.
fn parameters(begin: &Parameters, limits: &BTreeMap<String, String>) -> Parameters {
    let mut parameters = begin.clone();
    for (key, value) in limits {
        drop(parameters.set(key, value));
    }
    parameters
}

/// The units that a target should have now, by number. Those whose store is missing are not among them.
pub(super) fn wanted_luns(
    model: &Model,
    target: &IscsiName,
    units: &BTreeMap<String, LiveUnit>,
) -> BTreeMap<u16, Arc<LogicalUnit>> {
    let name = Name(target.clone());
    let luns = model.luns_of(&name);
    luns.filter_map(|map| Some((map.lun, Arc::clone(&units.get(map.unit.as_str())?.unit))))
        .collect()
}

/// `None` for a unit without an identity, which no saved model has.
pub(super) fn unit_config(unit: &Unit) -> Option<UnitConfig> {
    let (device_type, product) = match unit.device {
        Device::Cdrom => (DeviceType::Cdrom, "Virtual CD-ROM"),
        Device::Disk => (DeviceType::Disk, "Virtual disk"),
    };
    Some(UnitConfig {
        device_type,
        naa: unit.naa_bytes()?,
        serial: unit.serial.clone()?,
        vendor: unit.vendor.clone().unwrap_or_else(|| "LUNAPORT".into()),
        product: unit.product.clone().unwrap_or_else(|| product.into()),
        revision: unit.revision.clone().unwrap_or_else(|| REVISION.into()),
        thin: unit.thin,
        removable: unit.removable || unit.device == Device::Cdrom,
        soft_threshold: unit.soft_threshold_percent.map(SoftThreshold::Percent),
    })
}

/// What connections over RDMA call their transport.
pub const ISER: &str = "iser";
/// Product revision shown by INQUIRY: four characters.
const REVISION: &str = "0001";
