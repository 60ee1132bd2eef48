//! `NAME:SECRETFILE` options: CHAP names on the command line, secrets only in files.

use std::fs;

use target_core::control::{ChapCredential, ChapPolicy, Secret};

use crate::error::StartError;

/// The policy that `--chap` and `--mutual-chap` ask for.
pub(crate) fn policy(accepted: &[String], own: Option<&str>) -> Result<ChapPolicy, StartError> {
    if accepted.is_empty() {
        return match own {
            None => Ok(ChapPolicy::Open),
            Some(own) => Err(StartError::option(
                "--mutual-chap",
                own,
                "an initiator proves itself first; give --chap NAME:SECRETFILE as well",
            )),
        };
    }
    let accepted = accepted
        .iter()
        .map(|option| credential("--chap", option))
        .collect::<Result<Vec<_>, _>>()?;
    let own = own
        .map(|option| credential("--mutual-chap", option))
        .transpose()?;
    if let Some(own) = &own
        && accepted
            .iter()
            .any(|other| other.secret.expose() == own.secret.expose())
    {
        let problem =
            "its secret is also one of --chap; the two directions need different secrets (RFC 7143 §9.2.1)";
        return Err(StartError::option("--mutual-chap", &own.name, problem));
    }
    Ok(ChapPolicy::Required { accepted, own })
}

fn credential(option: &'static str, value: &str) -> Result<ChapCredential, StartError> {
    let wrong = |problem: String| StartError::option(option, value, problem);
    // An iSCSI name may be the CHAP name, and it has colons: the file is what follows the last one.
    let (name, file) = value
        .rsplit_once(':')
        .ok_or_else(|| wrong("not of the form NAME:SECRETFILE".into()))?;
    if name.is_empty() || name.len() > NAME_MAX {
        return Err(wrong(format!("a CHAP name has 1 to {NAME_MAX} bytes")));
    }
    let mut secret =
        fs::read(file).map_err(|error| wrong(format!("{file}: {error}; put the secret there")))?;
    if secret.ends_with(b"\n") {
        secret.pop();
    }
    if !(SECRET_MIN..=SECRET_MAX).contains(&secret.len()) {
        let problem = format!(
            "{file} holds a secret of {} bytes; {SECRET_MIN} to {SECRET_MAX} are allowed (RFC 7143 §9.2.1 wants 96 bits)",
            secret.len()
        );
        return Err(wrong(problem));
    }
    Ok(ChapCredential {
        name: name.into(),
        secret: Secret::new(secret),
    })
}

const NAME_MAX: usize = 223;
const SECRET_MIN: usize = 12;
const SECRET_MAX: usize = 255;

#[cfg(test)]
mod tests {
    use super::*;

    fn file(content: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), content).unwrap();
        file
    }

    #[test]
    fn one_newline_is_not_part_of_the_secret_and_every_other_byte_is() {
        let file = file(" &!#'\"secret 1 \n\n");
        let option = format!("iqn.2026-11.org.example:host:{}", file.path().display());
        let credential = credential("--chap", &option).unwrap();
        assert_eq!(credential.name, "iqn.2026-11.org.example:host");
        assert_eq!(credential.secret.expose(), b" &!#'\"secret 1 \n");
    }

    #[test]
    fn short_secrets_and_shared_secrets_are_refused_without_being_shown() {
        let short = file("tooshort\n");
        let option = format!("host:{}", short.path().display());
        let message = policy(&[option], None).unwrap_err().to_string();
        assert!(
            message.contains("8 bytes") && !message.contains("tooshort"),
            "{message}"
        );

        let secret = file("a-long-enough-secret");
        let option = format!("host:{}", secret.path().display());
        let message = policy(std::slice::from_ref(&option), Some(&option))
            .unwrap_err()
            .to_string();
        assert!(
            message.contains("different secrets") && !message.contains("long-enough"),
            "{message}"
        );
    }

    #[test]
    fn mutual_chap_alone_is_refused() {
        assert!(
            policy(&[], Some("me:/etc/secret"))
                .unwrap_err()
                .to_string()
                .contains("--chap")
        );
    }
}
