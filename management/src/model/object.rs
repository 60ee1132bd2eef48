//! What all kinds of objects have in common, and the closed list of kinds.

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use utoipa::ToSchema;

use super::{
    AccessRule, AdvertisedAddress, Credential, Initiator, InitiatorGroup, LunMap, Model, Portal, Settings,
    Store, Stored, Table, Target, Token, Unit, User,
};

/// An object of the model.
pub trait Object:
    Clone + PartialEq + Serialize + DeserializeOwned + ToSchema + Send + Sync + 'static
{
    /// Its kind.
    const KIND: Kind;

    /// Its key among its kind.
    fn key(&self) -> String;

    /// Where its kind is kept.
    fn table(model: &Model) -> &Table<Self>;

    /// The same, to change it.
    fn table_mut(model: &mut Model) -> &mut Table<Self>;

    /// As one of the closed set.
    fn into_any(self) -> AnyObject;

    /// The form the state keeps. Unlike serde's it has the secrets.
    fn to_state(&self) -> serde_json::Value {
        serde_json::to_value(self).expect("plain values have a JSON form")
    }

    /// What of an older object a newer one keeps when it says nothing of it: secrets and identities.
    fn inherit(&mut self, _older: &Self) {}
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident($object:ident) = $path:literal in $table:ident;)*) => {
        /// The kinds of objects.
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
        pub enum Kind { $($(#[$doc])* $name,)* }

        impl Kind {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Its name in keys, paths of the API and documents.
            #[must_use]
            pub const fn path(self) -> &'static str {
                match self { $(Self::$name => $path,)* }
            }
        }

        /// An object of any kind.
        #[derive(Clone, Debug, PartialEq)]
        pub enum AnyObject { $($(#[$doc])* $name($object),)* }

        impl AnyObject {
            /// Reads an object from the form the state keeps, or from the API's.
            ///
            /// # Errors
            /// What does not fit, with its place in the object.
            pub fn parse(kind: Kind, value: serde_json::Value) -> Result<Self, String> {
                match kind {
                    $(Kind::$name => from_json::<$object>(value).map(Self::$name),)*
                }
            }

            /// Its kind.
            #[must_use]
            pub const fn kind(&self) -> Kind {
                match self { $(Self::$name(_) => Kind::$name,)* }
            }

            /// Its key among its kind.
            #[must_use]
            pub fn key(&self) -> String {
                match self { $(Self::$name(object) => object.key(),)* }
            }

            /// The form the state keeps, secrets and all.
            #[must_use]
            pub fn to_state(&self) -> serde_json::Value {
                match self { $(Self::$name(object) => object.to_state(),)* }
            }

            /// The form the API shows.
            #[must_use]
            pub fn to_public(&self) -> serde_json::Value {
                match self {
                    $(Self::$name(object) => serde_json::to_value(object).expect("plain values have a JSON form"),)*
                }
            }

            /// Puts it into a model; what the same key had goes. It inherits what it does not say.
            pub fn put(self, model: &mut Model, revision: u64) {
                match self { $(Self::$name(object) => put(object, model, revision),)* }
            }
        }

        impl Model {
            /// Takes an object out.
            pub fn remove(&mut self, kind: Kind, key: &str) -> bool {
                match kind { $(Kind::$name => self.$table.remove(key).is_some(),)* }
            }

            /// An object with its revision.
            #[must_use]
            pub fn find(&self, kind: Kind, key: &str) -> Option<(u64, AnyObject)> {
                match kind {
                    $(Kind::$name => {
                        let stored = self.$table.get(key)?;
                        Some((stored.revision, AnyObject::$name(stored.value.clone())))
                    })*
                }
            }

            /// The revision of an object.
            #[must_use]
            pub fn revision(&self, kind: Kind, key: &str) -> Option<u64> {
                match kind { $(Kind::$name => self.$table.get(key).map(|stored| stored.revision),)* }
            }

            /// The keys of a kind, ascending.
            #[must_use]
            pub fn keys(&self, kind: Kind) -> Vec<String> {
                match kind { $(Kind::$name => self.$table.keys().cloned().collect(),)* }
            }

            /// Whether both have the very same object, or neither has one.
            #[must_use]
            pub fn shares(&self, other: &Self, kind: Kind, key: &str) -> bool {
                match kind {
                    $(Kind::$name => match (self.$table.get(key), other.$table.get(key)) {
                        (Some(one), Some(two)) => Arc::ptr_eq(one, two) || one == two,
                        (None, None) => true,
                        _ => false,
                    },)*
                }
            }

            /// Every object, with its revision.
            pub fn objects(&self) -> impl Iterator<Item = (u64, AnyObject)> + '_ {
                std::iter::empty()
                    $(.chain(self.$table.values().map(|stored| {
                        (stored.revision, AnyObject::$name(stored.value.clone()))
                    })))*
            }
        }

        $(impl From<$object> for AnyObject {
            fn from(object: $object) -> Self {
                Self::$name(object)
            }
        })*
    };
}

kinds! {
    /// Who may log in where.
    Access(AccessRule) = "access" in access;
    /// Addresses told in place of the portals'.
    Advertised(AdvertisedAddress) = "advertised" in advertised;
    /// CHAP names and secrets.
    Credential(Credential) = "credentials" in credentials;
    /// Groups of initiators.
    Group(InitiatorGroup) = "groups" in groups;
    /// Initiators that are known by name.
    Initiator(Initiator) = "initiators" in initiators;
    /// LUNs.
    Lun(LunMap) = "luns" in luns;
    /// Where initiators come in.
    Portal(Portal) = "portals" in portals;
    /// What holds for the whole node.
    Settings(Settings) = "settings" in settings;
    /// Where the bytes are.
    Store(Store) = "stores" in stores;
    /// Targets.
    Target(Target) = "targets" in targets;
    /// API tokens.
    Token(Token) = "tokens" in tokens;
    /// Logical units.
    Unit(Unit) = "units" in units;
    /// Who may manage.
    User(User) = "users" in users;
}

impl Kind {
    /// The kind with this path.
    #[must_use]
    pub fn from_path(path: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.path() == path)
    }

    /// Whether it belongs to the configuration, as opposed to who may change it.
    #[must_use]
    pub const fn is_configuration(self) -> bool {
        !matches!(self, Self::Token | Self::User)
    }
}

fn put<T: Object>(mut object: T, model: &mut Model, revision: u64) {
    let key = object.key();
    let table = T::table_mut(model);
    if let Some(older) = table.get(&key) {
        object.inherit(&older.value);
        if older.value == object {
            return;
        }
    }
    let stored = Stored {
        revision,
        value: object,
    };
    table.insert(key, Arc::new(stored));
}

fn from_json<T: DeserializeOwned>(value: serde_json::Value) -> Result<T, String> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        match path.as_str() {
            "." => error.inner().to_string(),
            _ => format!("{path}: {}", error.inner()),
        }
    })
}

/// Implements [`Object`] for a type: kind, table, key and what it inherits.
macro_rules! object {
    ($object:ident, $kind:ident, $table:ident, |$this:ident| $key:expr $(; $($more:item)+)?) => {
        impl super::Object for $object {
            const KIND: super::Kind = super::Kind::$kind;

            fn key(&self) -> String {
                let $this = self;
                $key
            }

            fn table(model: &super::Model) -> &super::Table<Self> {
                &model.$table
            }

            fn table_mut(model: &mut super::Model) -> &mut super::Table<Self> {
                &mut model.$table
            }

            fn into_any(self) -> super::AnyObject {
                super::AnyObject::$kind(self)
            }

            $($($more)+)?
        }
    };
}

pub(super) use object;
