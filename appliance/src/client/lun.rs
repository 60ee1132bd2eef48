//! `lunaport lun`: stores at numbers of targets.

use clap::Subcommand;
use serde_json::json;

use super::Api;
use crate::error::StartError;

#[derive(Debug, Subcommand)]
pub(crate) enum LunCommand {
    /// List LUNs.
    List {
        /// Of this target only.
        #[arg(long)]
        target: Option<String>,
    },
    /// Serve a store at a LUN; its logical unit is made when there is none.
    Add { target: String, lun: u16, store: String },
    /// Take a LUN away; the disk stays.
    Remove {
        target: String,
        lun: u16,
        /// Even when sessions use it.
        #[arg(long)]
        force: bool,
    },
}

pub(super) fn run(api: &Api, command: LunCommand) -> Result<(), StartError> {
    match command {
        LunCommand::List { target: None } => api.show(&api.all("/luns")?),
        LunCommand::List { target: Some(target) } => api.show(&api.all(&format!("/luns?target={target}"))?),
        LunCommand::Add { target, lun, store } => {
            let units = api.all("/units")?;
            let known = units
                .as_array()
                .into_iter()
                .flatten()
                .find(|unit| unit["store"] == store.as_str());
            let mut document = json!({});
            let unit = match known {
                Some(unit) => unit["id"].clone(),
                None => {
                    document["units"] = json!([{"id": store, "store": store}]);
                    store.into()
                }
            };
            document["luns"] = json!([{"target": target, "lun": lun, "unit": unit}]);
            api.show(&api.send("PUT", "/config", &document)?["differences"])
        }
        LunCommand::Remove { target, lun, force } => {
            api.delete(&format!("/luns/{target}/{lun}?force={force}"))
        }
    }
}
