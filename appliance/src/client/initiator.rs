//! `lunaport initiator`: who is known, who may log in where, and who could not.

use clap::Subcommand;
use serde_json::json;

use super::Api;
use crate::error::StartError;

#[derive(Debug, Subcommand)]
pub(crate) enum InitiatorCommand {
    /// List initiators that are known by name.
    List,
    /// List access rules.
    Rules,
    /// Let an initiator, or all whose name matches (with *), log in to a target; `any` is everyone.
    Allow { target: String, who: String },
    /// Take an access rule away.
    Deny {
        rule: String,
        /// Even when sessions are there by it.
        #[arg(long)]
        force: bool,
    },
    /// List logins that failed, and why.
    Failures,
}

pub(super) fn run(api: &Api, command: InitiatorCommand) -> Result<(), StartError> {
    match command {
        InitiatorCommand::List => api.show(&api.all("/initiators")?),
        InitiatorCommand::Rules => api.show(&api.all("/access")?),
        InitiatorCommand::Allow { target, who } => {
            let id = format!("{target}-{who}").to_ascii_lowercase();
            let id: String = id
                .chars()
                .map(|letter| {
                    if letter.is_ascii_alphanumeric() {
                        letter
                    } else {
                        '-'
                    }
                })
                .collect();
            // The end of both names tells more than their beginning.
            let id = id[id.len().saturating_sub(ID_MAX)..].trim_matches('-').to_owned();
            let mut rule = json!({"id": id, "target": target});
            match who.as_str() {
                "any" => rule["any"] = true.into(),
                who if who.contains(['*', '?']) => rule["pattern"] = who.into(),
                who => rule["initiator"] = who.into(),
            }
            api.show(&api.send("POST", "/access", &rule)?)
        }
        InitiatorCommand::Deny { rule, force } => api.delete(&format!("/access/{rule}?force={force}")),
        InitiatorCommand::Failures => api.show(&api.get("/login-failures")?["items"]),
    }
}

/// Characters of an id.
const ID_MAX: usize = 63;
