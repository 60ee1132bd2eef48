//! `lunaport lun`: stores at numbers of targets.

use clap::Subcommand;
use serde_json::{Value, json};

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
        LunCommand::List { target } => api.show(&list(api, target.as_deref())?),
        LunCommand::Add { target, lun, store } => add(api, &target, lun, &store),
        LunCommand::Remove { target, lun, force } => {
            api.delete(&format!("/luns/{target}/{lun}?force={force}"))
        }
    }
}

/// By target and number.
fn list(api: &Api, target: Option<&str>) -> Result<Value, StartError> {
    let mut luns = match target {
        None => api.all("/luns")?,
        Some(target) => api.all(&format!("/luns?target={target}"))?,
    };
    if let Some(luns) = luns.as_array_mut() {
        luns.sort_by_key(|lun| (lun["target"].to_string(), lun["lun"].as_u64()));
    }
    Ok(luns)
}

/// Nothing that is there already becomes another: hosts would find another disk under the number.
fn add(api: &Api, target: &str, lun: u16, store: &str) -> Result<(), StartError> {
    let (name, luns) = (target.to_ascii_lowercase(), list(api, Some(target))?);
    let units = api.all("/units")?;
    let known = units.as_array().into_iter().flatten();
    let known = known.into_iter().find(|unit| unit["store"] == store);
    let taken = luns.as_array().into_iter().flatten();
    if let Some(there) = taken.into_iter().find(|there| there["lun"] == lun) {
        if known.is_some_and(|unit| unit["id"] == there["unit"]) {
            return api.show(there);
        }
        let unit = there["unit"].as_str().unwrap_or_default();
        let problem = format!(
            "is unit {unit} already; take another number, or give this one up: lunaport lun remove {name} {lun}"
        );
        return Err(StartError::option("lun add", format!("{name} {lun}"), problem));
    }
    api.get(&format!("/targets/{target}"))?;
    let unit = match known {
        Some(unit) => unit["id"].clone(),
        None => api.send("POST", "/units", &json!({"id": store, "store": store}))?["id"].clone(),
    };
    let map = json!({"target": target, "lun": lun, "unit": unit});
    api.show(&api.send("POST", "/luns", &map)?)
}
