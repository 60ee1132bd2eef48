//! Random tokens and what is kept of them: a hash that nobody can turn back.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use utoipa::ToSchema;

/// A token that was made, shown this one time.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct NewToken {
    /// What it is called.
    pub id: String,
    /// The token itself, for `Authorization: Bearer`. It is not kept and cannot be shown again.
    pub token: String,
}

/// A new one.
pub(super) fn random(entropy: fn(&mut [u8])) -> String {
    let mut bytes = [0; 32];
    entropy(&mut bytes);
    URL_SAFE_NO_PAD.encode(bytes)
}

/// What is kept of it. It is random enough that a plain hash is.
pub(super) fn hash(token: &str) -> String {
    Sha256::digest(token.as_bytes())
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// What API tokens begin with, so that one that leaks is recognised.
pub(super) const PREFIX: &str = "lunaport_";
