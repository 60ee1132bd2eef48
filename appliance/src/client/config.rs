//! `lunaport config`: the whole configuration, out and in.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::Subcommand;
use serde_json::{Map, Value, json};

use super::{Api, read, table};
use crate::error::StartError;

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print the whole configuration.
    Show {
        /// With the secrets.
        #[arg(long)]
        secrets: bool,
    },
    /// Make the configuration what a file says; - is standard input.
    Apply {
        file: PathBuf,
        /// Say what would be done, and do nothing.
        #[arg(long)]
        dry_run: bool,
        /// Take away what the file does not name.
        #[arg(long)]
        prune: bool,
        /// Even when sessions lose something by it.
        #[arg(long)]
        force: bool,
    },
}

pub(super) fn run(api: &Api, command: ConfigCommand) -> Result<(), StartError> {
    match command {
        ConfigCommand::Show { secrets } => {
            let whole = api.get(&format!("/config?secrets={secrets}"))?;
            let text = serde_json::to_string_pretty(&whole).expect("a value is JSON");
            drop(writeln!(io::stdout(), "{text}"));
            Ok(())
        }
        ConfigCommand::Apply {
            file,
            dry_run,
            prune,
            force,
        } => {
            let text = read(&file, "config apply")?;
            let path = format!("/config?dry-run={dry_run}&prune={prune}&force={force}");
            let outcome = api.client.ask("PUT", &path, Some(text))?;
            let differences = &outcome["differences"];
            if api.json {
                return api.show(differences);
            }
            let rows = differences.as_array().into_iter().flatten().map(row);
            api.show(&Value::Array(rows.collect()))
        }
    }
}

/// A difference with what it changes instead of the whole objects, which `--json` has.
fn row(difference: &Value) -> Value {
    let mut row = json!({"action": difference["action"], "path": difference["path"]});
    if let (Some(before), Some(after)) = (difference["before"].as_object(), difference["after"].as_object()) {
        let fields: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        let changed = fields
            .into_iter()
            .filter(|&field| before.get(field) != after.get(field));
        let change = changed.map(|field| {
            let value =
                |of: &Map<String, Value>| of.get(field).map_or_else(|| "nothing".to_owned(), table::cell);
            format!("{field}: {} becomes {}", value(before), value(after))
        });
        row["change"] = change.collect::<Vec<_>>().join("; ").into();
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_told_by_the_fields_that_differ() {
        let difference = json!({
            "action": "change", "path": "targets/a",
            "before": {"name": "a", "enabled": true, "alias": "x"}, "after": {"name": "a", "enabled": false},
        });
        assert_eq!(
            row(&difference)["change"],
            "alias: x becomes nothing; enabled: true becomes false"
        );
        let created = json!({"action": "create", "path": "targets/b", "after": {"name": "b"}});
        assert_eq!(row(&created), json!({"action": "create", "path": "targets/b"}));
    }
}
