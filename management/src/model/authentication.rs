//! CHAP: names and secrets, and who has to prove what.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::object::object;
use super::{Id, SecretText};

/// Whether initiators have to prove who they are, and how. Policy decides, not the presence of secrets.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Authentication {
    /// None, or CHAP as a must.
    #[serde(default)]
    pub method: Method,
    /// Ids of the credentials that let an initiator in, unless it has one of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub credentials: Vec<Id>,
    /// Id of the credential that we prove ourselves with when the initiator asks (mutual CHAP).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mutual: Option<Id>,
}

/// What is asked of initiators.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// CHAP.
    Chap,
    /// Nothing.
    #[default]
    None,
}

/// A CHAP name and its secret.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Credential {
    /// What it is called here.
    pub id: Id,
    /// CHAP_N: the user name in the initiator, 1 to 223 bytes.
    #[schema(min_length = 1, max_length = 223)]
    pub name: String,
    /// The secret, 12 to 255 bytes; Windows takes 12 to 16. Never shown; leave it out to keep the one there is.
    #[serde(default, skip_serializing)]
    #[schema(write_only, min_length = 12, max_length = 255)]
    pub secret: Option<SecretText>,
}

object! {
    Credential, Credential, credentials, |credential| credential.id.to_string();

    fn to_state(&self) -> serde_json::Value {
        let mut value = serde_json::to_value(self).expect("plain values have a JSON form");
        value["secret"] = self.secret.as_ref().map(SecretText::expose).into();
        value
    }
    fn inherit(&mut self, older: &Self) {
        if self.secret.is_none() {
            self.secret.clone_from(&older.secret);
        }
    }
}
