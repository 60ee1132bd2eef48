//! Passwords as argon2 hashes. Hashing takes tens of milliseconds on purpose: never on a thread that others wait for.

use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};

use crate::model::SecretText;

/// The hash of a new password.
///
/// # Errors
/// Why this is no password to use.
pub(crate) fn hash(password: &str) -> Result<SecretText, String> {
    if !(PASSWORD_MIN..=PASSWORD_MAX).contains(&password.len()) {
        return Err(format!("a password has {PASSWORD_MIN} to {PASSWORD_MAX} bytes"));
    }
    let hash = Argon2::default()
        .hash_password(password.as_bytes())
        .map_err(|error| error.to_string())?;
    Ok(SecretText::new(hash.to_string()))
}

/// Whether a password has this hash. Takes as long when there is no hash to compare with.
pub(crate) fn verify(password: &str, hash: Option<&SecretText>) -> bool {
    let text = hash.map_or(NOBODYS, SecretText::expose);
    let fits = PasswordHash::new(text).is_ok_and(|parsed| {
        password.len() <= PASSWORD_MAX
            && Argon2::default()
                .verify_password(password.as_bytes(), &parsed)
                .is_ok()
    });
    fits && hash.is_some()
}

/// Bytes of a password, at least.
pub const PASSWORD_MIN: usize = 8;
/// Bytes of a password, at most.
pub const PASSWORD_MAX: usize = 1024;
/// A hash of the same cost that no password has been kept for.
const NOBODYS: &str =
    "$argon2id$v=19$m=19456,t=2,p=1$c29tZXNhbHRzb21lc2FsdA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_password_fits_its_hash() {
        let kept = hash("correct horse").unwrap();
        assert!(kept.expose().starts_with("$argon2id$"));
        assert!(verify("correct horse", Some(&kept)));
        assert!(!verify("correct horsf", Some(&kept)));
        assert!(!verify("correct horse", None));
        assert!(hash("short").is_err());
    }

    #[test]
    fn the_hash_that_nobody_has_can_be_computed_with() {
        assert!(PasswordHash::new(NOBODYS).is_ok());
    }
}
