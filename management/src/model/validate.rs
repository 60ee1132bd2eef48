//! Whether a model makes sense as a whole. Every problem is told, with its path and what would be right; one is enough
//! to refuse the change. What each kind of object has to be is said in the file of its name.

mod access;
mod portal;
mod store;
mod target;
mod unit;

use std::collections::BTreeMap;
use std::path::{Component, Path};

use serde::{Deserialize, Serialize};
use target_core::control::Parameters;
use utoipa::ToSchema;

use self::access::{check_access, check_authentication, check_credential, check_initiator};
use self::portal::{check_advertised, check_portals};
use self::store::{check_paths, check_store};
use self::target::{check_lun, check_target};
use self::unit::check_units;
use super::{
    AccessRule, AdvertisedAddress, Credential, Initiator, Kind, LunMap, Model, Object, Store, Target,
    VALUE_MAX,
};

/// What is wrong with one place of the configuration.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct Problem {
    /// Where, such as `luns/iqn.2026-11.org.example:a/3/unit`.
    pub path: String,
    /// What is wrong.
    pub problem: String,
    /// What would be right.
    pub fix: String,
}

impl Problem {
    /// A problem with an object as a whole, or with one of its fields (`"kind/key"` or `"kind/key/field"`).
    pub fn new(path: impl Into<String>, problem: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            problem: problem.into(),
            fix: fix.into(),
        }
    }
}

/// All problems of a model; none when it may be served. `base` is the folder of relative paths.
#[must_use]
pub fn validate(model: &Model, base: &Path) -> Vec<Problem> {
    let mut found = Found::default();
    check_sizes(model, &mut found);
    check_settings(model, &mut found);
    for target in model.all::<Target>() {
        check_target(model, target, &mut found);
    }
    for map in model.all::<LunMap>() {
        check_lun(model, map, &mut found);
    }
    for rule in model.all::<AccessRule>() {
        check_access(model, rule, &mut found);
    }
    for initiator in model.all::<Initiator>() {
        check_initiator(model, initiator, &mut found);
    }
    for credential in model.all::<Credential>() {
        check_credential(credential, &mut found);
    }
    for store in model.all::<Store>() {
        check_store(model, store, base, &mut found);
    }
    for rule in model.all::<AdvertisedAddress>() {
        check_advertised(rule, &mut found);
    }
    check_portals(model, &mut found);
    check_units(model, &mut found);
    check_paths(model, base, &mut found);
    found.0
}

#[derive(Default)]
struct Found(Vec<Problem>);

impl Found {
    fn add(
        &mut self,
        kind: Kind,
        key: &str,
        field: &str,
        problem: impl Into<String>,
        fix: impl Into<String>,
    ) {
        let mut path = format!("{}/{key}", kind.path());
        if !field.is_empty() {
            path.push('/');
            path.push_str(field);
        }
        self.0.push(Problem::new(path, problem, fix));
    }

    /// A reference to an object that has to be there.
    fn reference<T: Object>(&mut self, model: &Model, from: (Kind, &str, &str), to: &str) {
        if model.get::<T>(to).is_none() {
            let kind = T::KIND.path();
            let problem = absent(T::KIND, to);
            let fix = format!("make {kind}/{to} in the same change, or name one that is there");
            self.add(from.0, from.1, from.2, problem, fix);
        }
    }
}

/// What is said of a reference to an object that is not there.
pub(crate) fn absent(kind: Kind, key: &str) -> String {
    format!("there is no {key} among the {}", kind.path())
}

fn check_sizes(model: &Model, found: &mut Found) {
    for (_, object) in model.objects() {
        let len = object.to_state().to_string().len();
        if len > VALUE_MAX {
            let problem = format!("needs {len} bytes, and an object has at most {VALUE_MAX}");
            found.add(
                object.kind(),
                &object.key(),
                "",
                problem,
                "shorten its texts and lists",
            );
        }
    }
}

fn check_settings(model: &Model, found: &mut Found) {
    let settings = model.settings();
    check_limits(&settings.limits, (Kind::Settings, super::Settings::KEY), found);
    check_authentication(
        model,
        &settings.discovery,
        (Kind::Settings, super::Settings::KEY, "discovery"),
        found,
    );
    for root in &settings.store_roots {
        if !root.is_absolute() || root.components().any(|part| part == Component::ParentDir) {
            let problem = format!("{} is no absolute path", root.display());
            found.add(
                Kind::Settings,
                super::Settings::KEY,
                "store_roots",
                problem,
                "write the whole path, beginning with / and without ..",
            );
        }
    }
}

fn check_limits(limits: &BTreeMap<String, String>, at: (Kind, &str), found: &mut Found) {
    let mut parameters = Parameters::default();
    for (key, value) in limits {
        if let Err(error) = parameters.set(key, value) {
            found.add(
                at.0,
                at.1,
                &format!("limits/{key}"),
                error.to_string(),
                "correct or leave it out",
            );
        }
    }
}

#[cfg(test)]
mod tests;
