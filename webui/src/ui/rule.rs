//! Who may log in to a target, as forms ask for it: fields `who`, `initiator`, `group`, `network`, `pattern`.

use management::model::{AccessRule, Id, Model, Name, Object};

use super::form::Form;

/// The rule that a form asks for; `None` for nobody, or when a field is wrong, which the form then says. Without a target
/// the fields are looked at all the same, so that people are told everything at once.
pub(crate) fn read(form: &mut Form, target: Option<&Name>, model: &Model) -> Option<AccessRule> {
    let network = form.parse_filled("network");
    let (mut any, mut initiator, mut pattern, mut group) = (false, None, None, None);
    match form.value("who") {
        "any" => any = network.is_none(),
        "group" => group = Some(form.parse("group")?),
        "initiator" => initiator = Some(form.parse("initiator")?),
        "nobody" => return None,
        "pattern" => pattern = Some(form.parse("pattern")?),
        _ => {
            form.complain("who", "is not chosen", "say who may log in");
            return None;
        }
    }
    Some(AccessRule {
        id: free_id(model),
        target: target?.clone(),
        any,
        initiator,
        pattern,
        group,
        network,
    })
}

/// The field that a problem of a rule belongs to.
pub(crate) fn place(path: &str) -> Option<&'static str> {
    let field = path
        .strip_prefix("access/")?
        .split_once('/')
        .map_or("", |(_, field)| field);
    Some(match field {
        "initiator" => "initiator",
        "pattern" => "pattern",
        "group" => "group",
        "network" => "network",
        _ => "who",
    })
}

/// A rule in words.
pub(crate) fn words(rule: &AccessRule) -> String {
    let mut parts = Vec::new();
    if let Some(name) = &rule.initiator {
        parts.push(format!("initiator {name}"));
    }
    if let Some(pattern) = &rule.pattern {
        parts.push(format!("initiators like {pattern}"));
    }
    if let Some(group) = &rule.group {
        parts.push(format!("group {group}"));
    }
    if parts.is_empty() {
        parts.push("any initiator".to_owned());
    }
    if let Some(network) = &rule.network {
        parts.push(format!("from {network}"));
    }
    parts.join(" ")
}

/// Groups to choose from.
pub(crate) fn groups(model: &Model) -> Vec<(String, String)> {
    let groups = model.all::<management::model::InitiatorGroup>();
    groups.map(|group| (group.key(), group.key())).collect()
}

fn free_id(model: &Model) -> Id {
    let taken = |id: &str| model.get::<AccessRule>(id).is_some();
    let id = (1_u64..)
        .map(|number| format!("rule-{number}"))
        .find(|id| !taken(id));
    id.and_then(|id| id.parse().ok())
        .expect("there are more numbers than rules")
}
