//! Who may log in, and how they prove who they are.

use super::Found;
use crate::model::{
    AccessRule, Authentication, Credential, Id, Initiator, InitiatorGroup, Kind, Method, Model, Object,
    Target,
};

pub(super) fn check_access(model: &Model, rule: &AccessRule, found: &mut Found) {
    let key = rule.key();
    found.reference::<Target>(model, (Kind::Access, &key, "target"), &rule.target.to_string());
    if let Some(group) = &rule.group {
        found.reference::<InitiatorGroup>(model, (Kind::Access, &key, "group"), group.as_str());
    }
    if !rule.has_condition() {
        found.add(
            Kind::Access,
            &key,
            "",
            "does not say whom it lets in",
            "give initiator, pattern, group or network, or \"any\": true for everyone",
        );
    }
    if rule.any && (rule.initiator.is_some() || rule.pattern.is_some() || rule.group.is_some()) {
        found.add(
            Kind::Access,
            &key,
            "any",
            "lets everyone in and names some at the same time",
            "leave out \"any\", or the initiator, pattern and group",
        );
    }
}

pub(super) fn check_initiator(model: &Model, initiator: &Initiator, found: &mut Found) {
    let key = initiator.key();
    for group in &initiator.groups {
        found.reference::<InitiatorGroup>(model, (Kind::Initiator, &key, "groups"), group.as_str());
    }
    if let Some(credential) = &initiator.credential {
        found.reference::<Credential>(model, (Kind::Initiator, &key, "credential"), credential.as_str());
    }
}

pub(super) fn check_credential(credential: &Credential, found: &mut Found) {
    let key = credential.key();
    if credential.name.is_empty() || credential.name.len() > CHAP_NAME_MAX || credential.name.contains('\0') {
        let problem = format!("a CHAP name has 1 to {CHAP_NAME_MAX} bytes and no zero byte");
        found.add(Kind::Credential, &key, "name", problem, "correct the name");
    }
    let problem = match credential.secret.as_ref().map(|secret| secret.expose().len()) {
        None => "is missing".to_owned(),
        Some(SECRET_MIN..=SECRET_MAX) => return,
        Some(len) => format!("has {len} bytes"),
    };
    let fix = format!("give one of {SECRET_MIN} to {SECRET_MAX} bytes (RFC 7143 §9.2.1 wants 96 bits)");
    found.add(Kind::Credential, &key, "secret", problem, fix);
}

pub(super) fn check_authentication(
    model: &Model,
    authentication: &Authentication,
    at: (Kind, &str, &str),
    found: &mut Found,
) {
    let Authentication {
        method,
        credentials,
        mutual,
    } = authentication;
    for id in credentials {
        found.reference::<Credential>(model, (at.0, at.1, &format!("{}/credentials", at.2)), id.as_str());
    }
    let Some(mutual) = mutual else { return };
    let field = format!("{}/mutual", at.2);
    found.reference::<Credential>(model, (at.0, at.1, &field), mutual.as_str());
    if *method == Method::None {
        found.add(
            at.0,
            at.1,
            &field,
            "the target would prove itself to initiators that prove nothing",
            "set method to chap as well, or leave mutual out",
        );
    }
    let secret = |id: &Id| {
        model
            .get::<Credential>(id.as_str())
            .and_then(|it| it.secret.clone())
    };
    let own = secret(mutual);
    if own.is_some() && credentials.iter().any(|id| secret(id) == own) {
        found.add(
            at.0,
            at.1,
            &field,
            "its secret is also one that initiators prove",
            "give the two directions different secrets (RFC 7143 §9.2.1)",
        );
    }
}

const CHAP_NAME_MAX: usize = 223;
const SECRET_MIN: usize = 12;
const SECRET_MAX: usize = 255;
