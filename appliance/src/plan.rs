//! From `--export` options to the live picture: every store opened, every identity given, one directory. Fails
//! whole, before anything is served; a file that was created on the way is removed again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use backstores::{BlockStore, StoreSource};
use iscsi_proto::{IscsiName, Lun, Tpgt};
use management::identity::{IdentityMint, InstallationId, UnitIdentity};
use management::live::ISER;
use target_core::control::{Access, Advertised, ChapPolicy, Directory, Parameters, Portal, Target};
use target_core::scsi::{DeviceType, LogicalUnit, NonVolatileMemory, TargetDevice, UnitConfig};

use crate::error::StartError;
use crate::export::{Export, describe};
use crate::portal::{self, PortalSpec};

/// What is about to be served.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) directory: Directory,
    /// One entry per LUN, for the start-up lines and the flush at the end.
    pub(crate) units: Vec<PlannedUnit>,
}

/// A LUN of the plan.
#[derive(Debug)]
pub(crate) struct PlannedUnit {
    pub(crate) target: IscsiName,
    pub(crate) lun: u16,
    pub(crate) what: String,
    pub(crate) store: Arc<dyn BlockStore>,
    pub(crate) unit: Arc<LogicalUnit>,
}

/// What all targets of the plan have in common.
#[derive(Clone, Debug)]
pub(crate) struct Common {
    pub(crate) portals: Vec<PortalSpec>,
    /// Where the program says over HTTP how it is.
    pub(crate) management_url: Option<String>,
    pub(crate) chap: ChapPolicy,
    pub(crate) parameters: Parameters,
    pub(crate) advertised: Vec<Advertised>,
}

/// One target with the exports in order. The installation is asked for last, when every store is open: a start that
/// fails before makes no state directory.
pub(crate) fn from_exports(
    name: &str,
    exports: &[Export],
    installation: impl FnOnce() -> Result<(InstallationId, Arc<dyn NonVolatileMemory>), StartError>,
    common: &Common,
) -> Result<Plan, StartError> {
    let name = target_name("--target-name", name)?;
    let numbers = number_luns(exports)?;
    let mut opened = Opened::default();
    let stores = exports
        .iter()
        .map(|export| opened.open(&export.source, export.options, export.encrypt.as_deref()))
        .collect::<Result<Vec<_>, _>>()?;
    let (installation, memory) = installation()?;
    let mut mint = IdentityMint::new(installation, name.as_str());
    let device = device(&name, common)?;
    device
        .remember(&memory)
        .map_err(|error| StartError::option("--target-name", name.as_str(), error.to_string()))?;
    let mut units = Vec::new();
    for ((export, lun), store) in exports.iter().zip(numbers).zip(stores) {
        let identity = mint.next(&export.source);
        let serial = export.serial.clone().unwrap_or(identity.serial);
        let identity = UnitIdentity {
            naa: identity.naa,
            serial,
        };
        let config = UnitConfig {
            soft_threshold: export.soft_threshold,
            ..export.strings.apply(unit_config(
                identity,
                export.device_type,
                export.thin,
                export.removable,
            ))
        };
        let unit = unit(config, &store, &memory)?;
        assert!(device.map(lun, Arc::clone(&unit)), "numbers are distinct");
        units.push(PlannedUnit {
            target: name.clone(),
            lun,
            what: describe(export.device_type, &export.source),
            store,
            unit,
        });
    }
    opened.keep();
    let target = target(name, device, common);
    Ok(Plan {
        directory: directory([target], common),
        units,
    })
}

/// A unit that knows again what it kept.
fn unit(
    config: UnitConfig,
    store: &Arc<dyn BlockStore>,
    memory: &Arc<dyn NonVolatileMemory>,
) -> Result<Arc<LogicalUnit>, StartError> {
    let serial = config.serial.clone();
    let unit = LogicalUnit::new(config, Arc::clone(store));
    unit.remember(memory)
        .map_err(|error| StartError::option("disk with serial number", serial, error.to_string()))?;
    Ok(unit)
}

/// Stores opened so far, and the files that did not exist before.
#[derive(Debug, Default)]
struct Opened {
    created: Vec<PathBuf>,
}

impl Opened {
    fn open(
        &mut self,
        source: &StoreSource,
        options: backstores::StoreOptions,
        encrypt: Option<&Path>,
    ) -> Result<Arc<dyn BlockStore>, StartError> {
        let new_file = match source {
            StoreSource::File { path, .. } if !path.exists() => Some(path.clone()),
            _ => None,
        };
        let new_tags = source
            .beside()
            .filter(|path| options.protection && !path.exists());
        let store = match encrypt {
            None => backstores::open(source, options)?,
            Some(key_file) => backstores::open_encrypted(source, options, key_file)?,
        };
        self.created.extend(new_file.into_iter().chain(new_tags));
        Ok(store)
    }

    /// Everything worked: the files stay.
    fn keep(mut self) {
        self.created.clear();
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        for path in &self.created {
            // A start that failed leaves nothing behind; what cannot be removed is an empty sparse file.
            drop(std::fs::remove_file(path));
        }
    }
}

/// Pinned numbers first, then each export takes the lowest that is free.
fn number_luns(exports: &[Export]) -> Result<Vec<u16>, StartError> {
    let mut taken = std::collections::BTreeSet::new();
    for lun in exports.iter().filter_map(|export| export.lun) {
        if !taken.insert(lun) {
            return Err(StartError::option(
                "--export",
                format!("lun={lun}"),
                "two exports want this number",
            ));
        }
    }
    let mut free = (0..=Lun::MAX_NUMBER).filter(|lun| !taken.contains(lun));
    let numbers: Option<Vec<u16>> = exports
        .iter()
        .map(|export| export.lun.or_else(|| free.next()))
        .collect();
    numbers
        .ok_or_else(|| StartError::option("--export", "", format!("more than {} exports", Lun::MAX_NUMBER)))
}

fn target_name(option: &'static str, name: &str) -> Result<IscsiName, StartError> {
    name.parse().map_err(|error: iscsi_proto::NameError| {
        let example = "write for example iqn.2026-11.org.example:disks";
        StartError::option(option, name, format!("{}; {example}", error.problem))
    })
}

/// A device without units, reached by all portal groups in their first states.
fn device(name: &IscsiName, common: &Common) -> Result<Arc<TargetDevice>, StartError> {
    let groups = portal::groups(&common.portals)?;
    let ports: Vec<Tpgt> = groups.keys().copied().collect();
    let device = TargetDevice::new(name.clone(), &ports);
    for (port, state) in groups {
        if let Some(state) = state {
            device.set_access_state(port, state);
        }
    }
    if let Some(url) = &common.management_url {
        device.set_management_url(url.clone());
    }
    Ok(device)
}

fn target(name: IscsiName, device: Arc<TargetDevice>, common: &Common) -> Arc<Target> {
    Arc::new(Target {
        name,
        alias: None,
        tpgt: common.portals.first().map_or(Tpgt(1), |portal| portal.group),
        access: Access::Everyone,
        chap: common.chap.clone(),
        parameters: common.parameters.clone(),
        device,
    })
}

fn directory(targets: impl IntoIterator<Item = Arc<Target>>, common: &Common) -> Directory {
    Directory {
        targets: targets
            .into_iter()
            .map(|target| (target.name.clone(), target))
            .collect::<BTreeMap<_, _>>(),
        advertised: common.advertised.clone(),
        portals: portals(common, false),
        other_portals: [(ISER, portals(common, true))].into(),
        discovery_chap: ChapPolicy::Open,
        discovery_parameters: common.parameters.clone(),
    }
}

/// Those of TCP, or of RDMA.
pub(crate) fn portals(common: &Common, over_rdma: bool) -> Vec<Portal> {
    let wanted = common
        .portals
        .iter()
        .filter(|portal| portal.over_rdma == over_rdma);
    wanted.map(|portal| portal.to_portal()).collect()
}

fn unit_config(identity: UnitIdentity, device_type: DeviceType, thin: bool, removable: bool) -> UnitConfig {
    let product = match device_type {
        DeviceType::Cdrom => "Virtual CD-ROM",
        DeviceType::Disk => "Virtual disk",
    };
    UnitConfig {
        device_type,
        naa: identity.naa.to_vec(),
        serial: identity.serial,
        vendor: "LUNAPORT".into(),
        product: product.into(),
        revision: REVISION.into(),
        thin,
        removable,
        soft_threshold: None,
    }
}

/// Product revision shown by INQUIRY: four characters.
const REVISION: &str = "0001";

#[cfg(test)]
mod tests {
    use super::*;

    fn exports(specs: &[&str]) -> Vec<Export> {
        specs.iter().map(|spec| Export::parse(spec).unwrap()).collect()
    }

    #[test]
    fn pinned_numbers_keep_their_place_and_the_others_fill_up() {
        let exports = exports(&["memory:1M", "memory:1M,lun=1", "memory:1M", "memory:1M,lun=0"]);
        assert_eq!(number_luns(&exports).unwrap(), [2, 1, 3, 0]);
    }

    #[test]
    fn a_number_wanted_twice_is_named() {
        let message = number_luns(&exports(&["memory:1M,lun=5", "memory:1M,lun=5"]))
            .unwrap_err()
            .to_string();
        assert!(message.contains("lun=5"), "{message}");
    }

    #[test]
    fn a_start_that_fails_leaves_no_file_behind() {
        let directory = tempfile::tempdir().unwrap();
        let (new, missing) = (
            directory.path().join("new.img"),
            directory.path().join("missing.img"),
        );
        let exports = exports(&[
            &format!("file:{},size=1M", new.display()),
            &format!("file:{}", missing.display()),
        ]);
        let common = Common {
            portals: Vec::new(),
            management_url: None,
            chap: ChapPolicy::Open,
            parameters: Parameters::default(),
            advertised: Vec::new(),
        };
        let failed = from_exports(
            "iqn.2026-11.org.example:a",
            &exports,
            || unreachable!("a store cannot be opened"),
            &common,
        );
        let message = failed.unwrap_err().to_string();
        assert!(message.contains("missing.img"), "{message}");
        assert!(!new.exists());
    }
}
