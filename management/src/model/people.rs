//! Who may manage: users and API tokens. Their passwords and tokens are kept as hashes, and even those are shown to
//! nobody.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::object::object;
use super::{Id, SecretText};

/// What somebody may do.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Look.
    Viewer,
    /// Look, and change what is configured.
    Operator,
    /// Everything, users and secrets included.
    Admin,
}

/// Somebody who may log in.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct User {
    /// Login name.
    pub name: Id,
    /// What they may do.
    pub role: Role,
    /// The argon2 hash of the password.
    #[serde(default, skip_serializing)]
    #[schema(ignore)]
    pub password_hash: Option<SecretText>,
}

/// A token for machines.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Token {
    /// What it is called here.
    pub id: Id,
    /// What its bearer may do.
    pub role: Role,
    /// Who made it.
    pub created_by: String,
    /// When, in seconds since 1970.
    pub created: u64,
    /// Until when it is good, in seconds since 1970; left out, until it is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<u64>,
    /// SHA-256 of the token, hexadecimal.
    #[serde(default, skip_serializing)]
    #[schema(ignore)]
    pub hash: Option<SecretText>,
}

object! {
    User, User, users, |user| user.name.to_string();

    fn to_state(&self) -> serde_json::Value {
        let mut value = serde_json::to_value(self).expect("plain values have a JSON form");
        value["password_hash"] = self.password_hash.as_ref().map(SecretText::expose).into();
        value
    }
    fn inherit(&mut self, older: &Self) {
        if self.password_hash.is_none() {
            self.password_hash.clone_from(&older.password_hash);
        }
    }
}

object! {
    Token, Token, tokens, |token| token.id.to_string();

    fn to_state(&self) -> serde_json::Value {
        let mut value = serde_json::to_value(self).expect("plain values have a JSON form");
        value["hash"] = self.hash.as_ref().map(SecretText::expose).into();
        value
    }
    fn inherit(&mut self, older: &Self) {
        if self.hash.is_none() {
            self.hash.clone_from(&older.hash);
        }
    }
}
