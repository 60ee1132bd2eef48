//! `lunaport store`: made or adopted, grown, copied, forgotten.

use std::path::PathBuf;

use clap::Subcommand;
use serde_json::{Value, json};

use super::{Api, job};
use crate::error::StartError;
use crate::size::parse_size;

#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// List stores and how they are.
    List,
    /// Make or adopt one: file:PATH with a size for a new one, block:/dev/X, memory:SIZE.
    Create {
        id: String,
        place: String,
        /// Size of a new file, such as 10G.
        #[arg(long)]
        size: Option<String>,
        /// Fill the new file with zeroes, so that all its space is taken; a job does that.
        #[arg(long, requires = "size")]
        zero: bool,
        /// With --zero: return when it is done.
        #[arg(long, requires = "zero")]
        wait: bool,
    },
    /// Make a file larger.
    Grow { id: String, size: String },
    /// Copy one to a new file, which is a store of its own when the job is done.
    Clone {
        id: String,
        /// Id of the copy.
        new: String,
        /// Its file.
        path: PathBuf,
        /// Key file of the copy; a copy of an encrypted store needs one of its own.
        #[arg(long, value_name = "FILE")]
        encrypt: Option<PathBuf>,
        /// Return when it is done.
        #[arg(long)]
        wait: bool,
    },
    /// Forget one; its data stay unless told otherwise.
    Delete {
        id: String,
        /// Remove its file as well.
        #[arg(long)]
        delete_data: bool,
    },
}

pub(super) fn run(api: &Api, command: StoreCommand) -> Result<(), StartError> {
    let bytes = |size: &str| {
        parse_size(size).ok_or_else(|| StartError::option("size", size, "no size; write for example 10G"))
    };
    match command {
        StoreCommand::List => api.show(&api.get("/status")?["stores"]),
        StoreCommand::Create {
            id,
            place,
            size,
            zero,
            wait,
        } => {
            let (kind, what) = place.split_once(':').unwrap_or((&place, ""));
            let place = match kind {
                "file" => {
                    json!({"kind": "file", "path": what, "size": size.as_deref().map(bytes).transpose()?})
                }
                "block" => json!({"kind": "block", "path": what}),
                "memory" | "null" => json!({"kind": kind, "size": bytes(what)?}),
                _ => {
                    let problem = "not of the form file:PATH, block:/dev/X or memory:SIZE";
                    return Err(StartError::option("store create", &place, problem));
                }
            };
            let store = json!({"id": id, "place": place});
            if zero {
                begun(api, "/jobs", &json!({"kind": "zero", "store": store}), wait)
            } else {
                api.show(&api.send("POST", "/stores", &store)?)
            }
        }
        StoreCommand::Grow { id, size } => {
            let patch = json!({"place": {"size": bytes(&size)?}});
            api.show(&api.send("PATCH", &format!("/stores/{id}"), &patch)?)
        }
        StoreCommand::Clone {
            id,
            new,
            path,
            encrypt,
            wait,
        } => {
            let body = json!({"id": new, "path": path, "encrypt": encrypt});
            begun(api, &format!("/stores/{id}/clone"), &body, wait)
        }
        StoreCommand::Delete { id, delete_data } => {
            delete_units(api, &id)?;
            api.delete(&format!("/stores/{id}?delete-data={delete_data}"))
        }
    }
}

/// The logical units that `lun add` made over a store, unless LUNs lead to them: those somebody may use.
fn delete_units(api: &Api, store: &str) -> Result<(), StartError> {
    let (units, luns) = (api.all("/units")?, api.all("/luns")?);
    let units = units.as_array().into_iter().flatten();
    let units: Vec<_> = units.filter(|unit| unit["store"] == store).collect();
    let is_of_store = |lun: &&Value| units.iter().any(|unit| unit["id"] == lun["unit"]);
    if let Some(lun) = luns.as_array().into_iter().flatten().find(is_of_store) {
        let (target, number) = (lun["target"].as_str().unwrap_or_default(), &lun["lun"]);
        let problem = format!(
            "it is LUN {number} of {target}; take that away first: lunaport lun remove {target} {number}"
        );
        return Err(StartError::option("store delete", store, problem));
    }
    for unit in units {
        api.delete(&format!("/units/{}", unit["id"].as_str().unwrap_or_default()))?;
    }
    Ok(())
}

/// Begins a job, and waits for its end when that is wanted.
fn begun(api: &Api, path: &str, body: &Value, wait: bool) -> Result<(), StartError> {
    let job = api.send("POST", path, body)?;
    if wait { job::wait(api, job) } else { api.show(&job) }
}
