//! The whole configuration as one document: what `GET /config` shows and `PUT /config` takes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::model::{
    AccessRule, AdvertisedAddress, AnyObject, Credential, Initiator, InitiatorGroup, Kind, LunMap, Model,
    Object, Portal, Problem, Settings, Store, Target, Unit,
};

/// The whole configuration. Kinds that are left out are not touched; objects that are left out stay, unless the change
/// prunes.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(title = "Configuration")]
pub struct Document {
    /// What holds for the whole node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<Settings>,
    /// Where initiators come in.
    #[serde(default)]
    pub portals: Vec<Portal>,
    /// Addresses told in place of the portals'.
    #[serde(default)]
    pub advertised: Vec<AdvertisedAddress>,
    /// Where the bytes are.
    #[serde(default)]
    pub stores: Vec<Store>,
    /// Logical units.
    #[serde(default)]
    pub units: Vec<Unit>,
    /// Targets.
    #[serde(default)]
    pub targets: Vec<Target>,
    /// Which unit has which number at which target.
    #[serde(default)]
    pub luns: Vec<LunMap>,
    /// Groups of initiators.
    #[serde(default)]
    pub groups: Vec<InitiatorGroup>,
    /// Initiators that are known by name.
    #[serde(default)]
    pub initiators: Vec<Initiator>,
    /// Who may log in where.
    #[serde(default)]
    pub access: Vec<AccessRule>,
    /// CHAP names, and secrets where they are new.
    #[serde(default)]
    pub credentials: Vec<Credential>,
}

impl Document {
    /// The configuration of a model, without secrets.
    #[must_use]
    pub fn of(model: &Model) -> Self {
        fn all<T: Object>(model: &Model) -> Vec<T> {
            model.all::<T>().cloned().collect()
        }
        Self {
            settings: model.get::<Settings>(Settings::KEY).cloned(),
            portals: all(model),
            advertised: all(model),
            stores: all(model),
            units: all(model),
            targets: all(model),
            luns: all(model),
            groups: all(model),
            initiators: all(model),
            access: all(model),
            credentials: all(model),
        }
    }

    /// Its JSON form with the secrets, for who asked for them.
    #[must_use]
    pub fn with_secrets(&self) -> serde_json::Value {
        let mut value = serde_json::to_value(self).expect("plain values have a JSON form");
        value["credentials"] = self.credentials.iter().map(Object::to_state).collect();
        value
    }

    /// Reads a document.
    ///
    /// # Errors
    /// What does not fit, with its place.
    pub fn parse(text: &[u8]) -> Result<Self, Problem> {
        let mut json = serde_json::Deserializer::from_slice(text);
        let document = serde_path_to_error::deserialize(&mut json).map_err(|error| {
            Problem::new(
                error.path().to_string(),
                error.inner().to_string(),
                "see Configuration in the API's description",
            )
        })?;
        json.end().map_err(|error| {
            Problem::new(
                ".",
                error.to_string(),
                "send one JSON document and nothing behind it",
            )
        })?;
        Ok(document)
    }

    /// Its objects; the ones of a key that is there twice are problems.
    pub(crate) fn into_objects(self) -> Result<Vec<AnyObject>, Vec<Problem>> {
        let mut objects = Objects::default();
        objects.take("settings", self.settings.into_iter());
        objects.take("portals", self.portals.into_iter());
        objects.take("advertised", self.advertised.into_iter());
        objects.take("stores", self.stores.into_iter());
        objects.take("units", self.units.into_iter());
        objects.take("targets", self.targets.into_iter());
        objects.take("luns", self.luns.into_iter());
        objects.take("groups", self.groups.into_iter());
        objects.take("initiators", self.initiators.into_iter());
        objects.take("access", self.access.into_iter());
        objects.take("credentials", self.credentials.into_iter());
        if objects.problems.is_empty() {
            Ok(objects.all)
        } else {
            Err(objects.problems)
        }
    }
}

#[derive(Default)]
struct Objects {
    all: Vec<AnyObject>,
    seen: BTreeMap<(Kind, String), usize>,
    problems: Vec<Problem>,
}

impl Objects {
    fn take<T: Object>(&mut self, list: &str, objects: impl Iterator<Item = T>) {
        for (place, object) in objects.enumerate() {
            let key = object.key();
            if let Some(first) = self.seen.insert((T::KIND, key.clone()), place) {
                let problem = format!("{key} is {list}[{first}] already");
                self.problems.push(Problem::new(
                    format!("{list}[{place}]"),
                    problem,
                    "leave one of them out, or rename it",
                ));
            }
            self.all.push(object.into_any());
        }
    }
}
