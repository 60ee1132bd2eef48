//! Everything that is configured, as typed objects in tables: what the state keeps, what the API shows, what the node
//! follows. Plain values; nothing here opens, listens or saves.
//!
//! An object has a kind and a key, is kept under `kind/key`, and never needs more than [`VALUE_MAX`] bytes there.

mod access;
mod authentication;
mod object;
mod people;
mod portal;
mod secret;
mod settings;
mod store;
mod target;
mod text;
mod unit;
mod validate;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use access::{AccessRule, Initiator, InitiatorGroup};
pub use authentication::{Authentication, Credential, Method};
pub use object::{AnyObject, Kind, Object};
pub use people::{Role, Token, User};
pub use portal::{AdvertisedAddress, Portal, Transport};
pub use secret::SecretText;
pub use settings::Settings;
pub use store::{Cache, Place, Store};
pub use target::{LunMap, Target};
pub use text::{Cidr, Id, Name, Pattern};
pub use unit::{Device, Unit};
pub(crate) use validate::absent;
pub use validate::{Problem, validate};

/// Objects of one kind by key.
pub type Table<T> = BTreeMap<String, Arc<Stored<T>>>;

/// An object and the generation that made it what it is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Stored<T> {
    /// Generation of the state in which it changed last.
    pub revision: u64,
    /// The object.
    pub value: T,
}

/// All objects. Cheap to clone: the objects are shared.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Model {
    /// Counts the changes; 0 before the first.
    pub generation: u64,
    /// Who may log in where.
    pub access: Table<AccessRule>,
    /// Addresses told in place of the portals'.
    pub advertised: Table<AdvertisedAddress>,
    /// CHAP names and secrets.
    pub credentials: Table<Credential>,
    /// Groups of initiators.
    pub groups: Table<InitiatorGroup>,
    /// Initiators that are known by name.
    pub initiators: Table<Initiator>,
    /// Which unit has which number at which target.
    pub luns: Table<LunMap>,
    /// Where initiators come in.
    pub portals: Table<Portal>,
    /// What holds for the whole node: one object, with the key `node`.
    pub settings: Table<Settings>,
    /// Where the bytes are.
    pub stores: Table<Store>,
    /// Targets.
    pub targets: Table<Target>,
    /// API tokens.
    pub tokens: Table<Token>,
    /// Logical units.
    pub units: Table<Unit>,
    /// Who may manage.
    pub users: Table<User>,
}

impl Model {
    /// The object with this key.
    #[must_use]
    pub fn get<T: Object>(&self, key: &str) -> Option<&T> {
        T::table(self).get(key).map(|stored| &stored.value)
    }

    /// All objects of a kind, by key.
    pub fn all<T: Object>(&self) -> impl Iterator<Item = &T> {
        T::table(self).values().map(|stored| &stored.value)
    }

    /// What holds for the node.
    #[must_use]
    pub fn settings(&self) -> Settings {
        self.get::<Settings>(Settings::KEY).cloned().unwrap_or_default()
    }

    /// The LUNs of a target, by number.
    pub fn luns_of<'a>(&'a self, target: &Name) -> impl Iterator<Item = &'a LunMap> {
        // Keys are `target/number`; '0' is the character behind '/'.
        let range = format!("{target}/")..format!("{target}0");
        let mut luns: Vec<_> = self.luns.range(range).map(|(_, stored)| &stored.value).collect();
        luns.sort_by_key(|map| map.lun);
        luns.into_iter()
    }

    /// The rules of a target.
    pub fn access_of<'a>(&'a self, target: &'a Name) -> impl Iterator<Item = &'a AccessRule> {
        self.all::<AccessRule>()
            .filter(move |rule| rule.target == *target)
    }
}

/// Bytes that an object may need in the state.
pub const VALUE_MAX: usize = 4096;
