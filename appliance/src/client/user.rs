//! `lunaport user`: users, their passwords, tokens for machines.

use std::path::PathBuf;

use clap::Subcommand;
use serde_json::json;

use super::{Api, read};
use crate::error::StartError;

#[derive(Debug, Subcommand)]
pub(crate) enum UserCommand {
    /// List users.
    List,
    /// Make a user, or give one another role or password.
    Set {
        name: String,
        /// viewer, operator or admin.
        #[arg(long, default_value = "admin")]
        role: String,
        /// Holds the password; - is standard input. One newline at its end does not belong to it.
        #[arg(long, value_name = "FILE")]
        password_file: Option<PathBuf>,
    },
    /// Delete one.
    Delete { name: String },
    /// Make an API token, which is printed this one time.
    Token {
        id: String,
        /// viewer, operator or admin.
        #[arg(long, default_value = "viewer")]
        role: String,
    },
}

pub(super) fn run(api: &Api, command: UserCommand) -> Result<(), StartError> {
    match command {
        UserCommand::List => api.show(&api.get("/users")?["items"]),
        UserCommand::Set {
            name,
            role,
            password_file,
        } => {
            let mut body = json!({"role": role});
            if let Some(file) = password_file {
                let text = read(&file, "--password-file")?;
                body["password"] = text.strip_suffix('\n').unwrap_or(&text).into();
            }
            api.show(&api.send("PUT", &format!("/users/{name}"), &body)?)
        }
        UserCommand::Delete { name } => api.delete(&format!("/users/{name}")),
        UserCommand::Token { id, role } => {
            api.show(&api.send("POST", "/tokens", &json!({"id": id, "role": role}))?)
        }
    }
}
