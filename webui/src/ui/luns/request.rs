//! What the guided form asks for: a disk, new or there already; a target, new or there already; who may use it, and how
//! they prove who they are. Read into the edits of one change.

use std::path::{Path, PathBuf};

use management::control::{Edit, Precondition, StoreRoot};
use management::model::{
    Authentication, Cache, Credential, Device, Id, Kind, LunMap, Method, Model, Name, Object, Place, Store,
    Target, Unit,
};

use crate::Web;
use crate::ui::form::Form;
use crate::ui::{rule, show};

/// A LUN as it was asked for. Its number is not chosen yet.
pub(super) struct Request {
    /// Everything but the LUN itself.
    pub(super) edits: Vec<Edit>,
    pub(super) preconditions: Vec<Precondition>,
    pub(super) target: Name,
    pub(super) unit: Id,
    /// The number, when one was asked for.
    pub(super) number: Option<u16>,
    /// The file of the new disk is filled with zeroes first.
    pub(super) is_zeroed: bool,
}

/// Reads the form; `None` when something is wrong, which the form then says.
pub(super) fn read(form: &mut Form, model: &Model) -> Option<Request> {
    let mut request = Draft {
        model,
        form,
        edits: Vec::new(),
        preconditions: Vec::new(),
    };
    let unit = request.disk();
    let target = request.target();
    let number = request.form.parse_filled::<u16>("lun");
    let is_zeroed = request.is_zeroed();
    let Draft {
        edits, preconditions, ..
    } = request;
    if form.is_bad() {
        return None;
    }
    Some(Request {
        edits,
        preconditions,
        target: target?,
        unit: unit?,
        number,
        is_zeroed,
    })
}

/// Disks that are there to be mapped: units and stores that are mapped nowhere, and the one of value `chosen`, wherever it
/// is. As (value, label).
pub(super) fn mappable(model: &Model, chosen: &str) -> Vec<(String, String)> {
    let mapped: std::collections::BTreeSet<&Id> = model.all::<LunMap>().map(|map| &map.unit).collect();
    let used: std::collections::BTreeSet<&Id> = model.all::<Unit>().map(|unit| &unit.store).collect();
    let units = model.all::<Unit>().filter_map(|unit| {
        let value = format!("unit:{}", unit.id);
        let what = if mapped.contains(&unit.id) {
            "at a LUN already"
        } else {
            "disk with its identity"
        };
        let is_offered = value == chosen || !mapped.contains(&unit.id);
        is_offered.then(|| (value, format!("{} ({what})", unit.id)))
    });
    let stores = model.all::<Store>().filter(|store| !used.contains(&store.id));
    let stores = stores.map(|store| (format!("store:{}", store.id), format!("{} (store)", store.id)));
    units.chain(stores).collect()
}

/// Folders that a new file may be made in, with the space that is left there. As (value, label).
pub(in crate::ui) async fn folders(web: &Web) -> Vec<(String, String)> {
    let own = web.control().directory().display().to_string();
    let label = |root: StoreRoot| {
        let free = root.free.map(|free| format!("{} free", show::bytes(free)));
        let (value, what) = if root.path == own {
            (String::new(), Some("state directory".to_owned()))
        } else {
            (root.path.clone(), None)
        };
        let notes: Vec<_> = what.into_iter().chain(free).collect();
        (value, format!("{} ({})", root.path, notes.join(", ")))
    };
    // A root that was set is where disks are meant to go, and comes first.
    web.control().store_roots().await.into_iter().map(label).collect()
}

/// How much a store could grow, as a sentence that follows another one; empty when nobody knows.
pub(in crate::ui) async fn space_beside(web: &Web, store: &Store) -> String {
    let free = web.control().space_beside(store).await;
    free.map_or_else(String::new, |free| {
        format!(" {} are free there.", show::bytes(free))
    })
}

/// The path of a new file: beside the state, or in a store root.
pub(in crate::ui) fn file_in(folder: &str, id: &Id) -> PathBuf {
    Path::new(folder).join(format!("{id}.img"))
}

/// A logical unit over a store, with the usual properties. A disc has blocks of 2048 bytes.
pub(in crate::ui) fn unit_over(id: Id, store: &Store) -> Unit {
    Unit {
        id,
        store: store.id.clone(),
        naa: None,
        serial: None,
        product: None,
        vendor: None,
        revision: None,
        soft_threshold_percent: None,
        device: if store.block_size == Some(DISC_BLOCK) {
            Device::Cdrom
        } else {
            Device::Disk
        },
        thin: true,
        removable: false,
        enabled: true,
    }
}

struct Draft<'a> {
    model: &'a Model,
    form: &'a mut Form,
    edits: Vec<Edit>,
    preconditions: Vec<Precondition>,
}

impl Draft<'_> {
    fn disk(&mut self) -> Option<Id> {
        if self.form.has("disk", "existing") {
            self.existing_disk()
        } else {
            self.new_disk()
        }
    }

    fn new_disk(&mut self) -> Option<Id> {
        let id = self.form.parse::<Id>("name");
        let size = read_size(self.form);
        let (id, size) = (id?, size?);
        let store = Store {
            id: id.clone(),
            place: Place::File {
                path: file_in(self.form.value("folder"), &id),
                size: Some(size),
            },
            read_only: false,
            block_size: if self.form.has("block_size", "4096") {
                Some(4096)
            } else {
                None
            },
            physical_block_size: None,
            cache: Cache::WriteBack,
            direct: false,
            protection: false,
            encrypt: None,
        };
        self.preconditions
            .push(Precondition::Absent(Kind::Store, id.to_string()));
        self.preconditions
            .push(Precondition::Absent(Kind::Unit, id.to_string()));
        let unit = Unit {
            thin: !self.is_zeroed(),
            ..unit_over(id.clone(), &store)
        };
        self.edits.push(Edit::Put(unit.into()));
        self.edits.push(Edit::Put(store.into()));
        Some(id)
    }

    fn is_zeroed(&self) -> bool {
        !self.form.has("disk", "existing") && self.form.is_set("zeroed")
    }

    fn existing_disk(&mut self) -> Option<Id> {
        let chosen = self.form.value("existing").to_owned();
        let found = match chosen.split_once(':') {
            Some(("unit", id)) => self.model.get::<Unit>(id).map(|unit| unit.id.clone()),
            Some(("store", id)) => self.model.get::<Store>(id).map(|store| {
                let unit = unit_over(store.id.clone(), store);
                self.preconditions
                    .push(Precondition::Absent(Kind::Unit, unit.key()));
                self.edits.push(Edit::Put(unit.into()));
                store.id.clone()
            }),
            _ => None,
        };
        if found.is_none() {
            self.form
                .complain("existing", "is not chosen", "choose a disk, or make a new one");
        }
        found
    }

    fn target(&mut self) -> Option<Name> {
        if self.form.has("at", "existing") {
            let known = self.model.get::<Target>(self.form.value("target"));
            if known.is_none() {
                self.form
                    .complain("target", "is not chosen", "choose a target, or make a new one");
            }
            return known.map(|target| target.name.clone());
        }
        let name = self.target_name();
        let authentication = self.authentication();
        if let Some(rule) = rule::read(self.form, name.as_ref(), self.model) {
            self.edits.push(Edit::Put(rule.into()));
        }
        let (name, authentication) = (name?, authentication?);
        let target = Target {
            name: name.clone(),
            alias: self.form.filled("alias"),
            enabled: true,
            portal_groups: Vec::new(),
            authentication,
            limits: std::collections::BTreeMap::new(),
        };
        self.preconditions
            .push(Precondition::Absent(Kind::Target, name.to_string()));
        self.edits.push(Edit::Put(target.into()));
        Some(name)
    }

    /// Where the name ends with a colon, that of the disk follows, if there is a good one.
    fn target_name(&mut self) -> Option<Name> {
        if self.form.value("target_name").ends_with(':') && !self.form.has("disk", "existing") {
            let disk = self.form.value("name").parse::<Id>().ok()?;
            let name = format!("{}{disk}", self.form.value("target_name"));
            self.form.set("target_name", name);
        }
        self.form.parse("target_name")
    }

    fn authentication(&mut self) -> Option<Authentication> {
        let credential = match self.form.value("chap") {
            "new" => self.new_credential()?,
            "existing" => self.form.parse::<Id>("credential")?,
            _ => return Some(Authentication::default()),
        };
        Some(Authentication {
            method: Method::Chap,
            credentials: vec![credential],
            mutual: None,
        })
    }

    fn new_credential(&mut self) -> Option<Id> {
        let (name, secret) = (self.form.filled("chap_name"), self.form.secret("chap_secret"));
        if name.is_none() {
            self.form.complain(
                "chap_name",
                "is missing",
                "choose a name that the initiator gives",
            );
        }
        if secret.is_none() {
            self.form
                .complain("chap_secret", "is missing", "write one of 12 to 16 characters");
        }
        let (name, secret) = (name?, secret?);
        let id = self.free_credential_id(&name)?;
        let credential = Credential {
            id: id.clone(),
            name,
            secret: Some(secret),
        };
        self.preconditions
            .push(Precondition::Absent(Kind::Credential, id.to_string()));
        self.edits.push(Edit::Put(credential.into()));
        Some(id)
    }

    /// An id that resembles the CHAP name.
    fn free_credential_id(&self, name: &str) -> Option<Id> {
        let fits = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit() || "-_.".contains(it);
        let base: String = name
            .to_lowercase()
            .chars()
            .map(|it| if fits(it) { it } else { '-' })
            .take(50)
            .collect();
        let base = base.trim_start_matches(['-', '_', '.']).to_owned();
        let base = if base.is_empty() { "chap".to_owned() } else { base };
        let others = (2_u32..).map(|number| format!("{base}-{number}"));
        let id = std::iter::once(base.clone())
            .chain(others)
            .find(|id| self.model.get::<Credential>(id).is_none())?;
        id.parse().ok()
    }
}

/// The field `size`.
pub(in crate::ui) fn read_size(form: &mut Form) -> Option<u64> {
    if form.value("size").is_empty() {
        form.complain("size", "is missing", "write for example 10 GiB");
        return None;
    }
    match show::parse_bytes(form.value("size")) {
        Ok(0) => {
            form.complain("size", "is nothing", "write for example 10 GiB");
            None
        }
        Ok(size) => Some(size),
        Err(problem) => {
            form.complain("size", problem, "");
            None
        }
    }
}

const DISC_BLOCK: u32 = 2048;
