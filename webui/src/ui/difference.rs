//! What a change does to each object, field by field, as pages show it: in the audit log, and before a configuration is
//! applied. Secrets are not in it: they are left out where the difference is made.

use std::collections::BTreeMap;

use management::diff::{Action, Difference};
use serde_json::Value;

/// An object that is different.
#[derive(Debug, PartialEq)]
pub(super) struct ChangedObject {
    /// `kind/key`.
    pub(super) path: String,
    /// `created`, `changed` or `deleted`.
    pub(super) verb: &'static str,
    /// Its fields that are different, by name.
    pub(super) fields: Vec<ChangedField>,
}

/// A field that is different.
#[derive(Debug, PartialEq)]
pub(super) struct ChangedField {
    /// Names from the outside in, with dots between.
    pub(super) name: String,
    /// As it was; `None` when it was not there.
    pub(super) before: Option<String>,
    /// As it becomes; `None` when it goes.
    pub(super) after: Option<String>,
}

impl ChangedObject {
    pub(super) fn of(difference: &Difference) -> Self {
        let before = difference.before.as_ref().map(fields).unwrap_or_default();
        let after = difference.after.as_ref().map(fields).unwrap_or_default();
        let names: std::collections::BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        let different = names
            .into_iter()
            .filter(|name| before.get(*name) != after.get(*name));
        Self {
            path: difference.path.clone(),
            verb: match difference.action {
                Action::Change => "changed",
                Action::Create => "created",
                Action::Delete => "deleted",
            },
            fields: different
                .map(|name| ChangedField {
                    name: name.clone(),
                    before: before.get(name).cloned(),
                    after: after.get(name).cloned(),
                })
                .collect(),
        }
    }

    /// Those that an event of the audit log has kept.
    pub(super) fn of_event(data: &Value) -> Vec<Self> {
        let kept = data.get("differences").cloned().unwrap_or_default();
        let differences: Vec<Difference> = serde_json::from_value(kept).unwrap_or_default();
        differences.iter().map(Self::of).collect()
    }
}

/// Every value that is no object, by the names that lead to it.
fn fields(object: &Value) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    collect("", object, &mut found);
    found
}

fn collect(name: &str, value: &Value, found: &mut BTreeMap<String, String>) {
    let text = match value {
        Value::Object(fields) => {
            for (field, value) in fields {
                let name = if name.is_empty() {
                    field.clone()
                } else {
                    format!("{name}.{field}")
                };
                collect(&name, value, found);
            }
            return;
        }
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(", "),
        _ => plain(value),
    };
    found.insert(name.to_owned(), text);
}

fn plain(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), ToOwned::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_is_different_is_named_with_the_way_to_it() {
        let difference = Difference {
            path: "stores/one".to_owned(),
            action: Action::Change,
            before: Some(json!({"id": "one", "place": {"kind": "file", "size": 1}, "direct": false})),
            after: Some(json!({"id": "one", "place": {"kind": "file", "size": 2}, "groups": ["a", "b"]})),
        };
        let shown = ChangedObject::of(&difference);
        let fields: Vec<_> = shown
            .fields
            .iter()
            .map(|field| {
                (
                    field.name.as_str(),
                    field.before.as_deref(),
                    field.after.as_deref(),
                )
            })
            .collect();
        assert_eq!(
            fields,
            [
                ("direct", Some("false"), None),
                ("groups", None, Some("a, b")),
                ("place.size", Some("1"), Some("2")),
            ]
        );
    }

    #[test]
    fn an_event_without_differences_shows_none() {
        assert_eq!(ChangedObject::of_event(&json!({"peer": "192.0.2.1:1"})), []);
    }
}
