//! `lunaport target`: targets, and fields of them.

use clap::Subcommand;
use serde_json::json;

use super::Api;
use crate::error::StartError;

#[derive(Debug, Subcommand)]
pub(crate) enum TargetCommand {
    /// List targets.
    List,
    /// Show one.
    Show { name: String },
    /// Make one. It admits nobody until a rule does.
    Create {
        name: String,
        /// Text for people.
        #[arg(long)]
        alias: Option<String>,
    },
    /// Change fields, such as enabled=false or alias=text.
    Set {
        name: String,
        #[arg(required = true, value_name = "FIELD=VALUE")]
        fields: Vec<String>,
    },
    /// Show how well its portal groups reach its disks (ALUA), and who said so.
    States { name: String },
    /// Put portal groups whose states initiators set back into those of the start.
    ResetStates { name: String },
    /// Delete one, with its LUNs and rules; disks stay.
    Delete {
        name: String,
        /// Even when sessions use it.
        #[arg(long)]
        force: bool,
    },
}

pub(super) fn run(api: &Api, command: TargetCommand) -> Result<(), StartError> {
    match command {
        TargetCommand::List => api.show(&api.all("/targets")?),
        TargetCommand::Show { name } => api.show(&api.get(&format!("/targets/{name}"))?),
        TargetCommand::Create { name, alias } => {
            api.show(&api.send("POST", "/targets", &json!({"name": name, "alias": alias}))?)
        }
        TargetCommand::Set { name, fields } => {
            let mut patch = json!({});
            for field in fields {
                let (key, value) = field
                    .split_once('=')
                    .ok_or_else(|| StartError::option("target set", &field, "not of the form FIELD=VALUE"))?;
                patch[key] = serde_json::from_str(value).unwrap_or_else(|_| value.into());
            }
            api.show(&api.send("PATCH", &format!("/targets/{name}"), &patch)?)
        }
        TargetCommand::States { name } => api.show(&api.get(&format!("/access-states/{name}"))?["groups"]),
        TargetCommand::ResetStates { name } => api.delete(&format!("/access-states/{name}")),
        TargetCommand::Delete { name, force } => api.delete(&format!("/targets/{name}?force={force}")),
    }
}
