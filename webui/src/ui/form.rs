//! What a form brought, and what is wrong with it: the same value fills the form again, with each complaint beside its
//! field. Secrets are kept apart, where no template can reach them.

use std::str::FromStr;

use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, header};
use management::control::Precondition;
use management::model::{Kind, Model, Problem, SecretText};

use crate::{ProblemDetails, Refusal, Web};

/// The fields of a form.
#[derive(Default)]
pub(crate) struct Form {
    fields: Vec<(String, String)>,
    secrets: Vec<(String, SecretText)>,
    complaints: Vec<(String, Complaint)>,
    /// What is wrong and belongs to no field.
    pub(crate) banner: Option<ProblemDetails>,
}

/// What is wrong with a field.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Complaint {
    /// What is wrong.
    pub(crate) problem: String,
    /// What would be right.
    pub(crate) fix: String,
}

impl Form {
    /// A form with these values, for the first time it is shown.
    pub(crate) fn of<'a>(fields: impl IntoIterator<Item = (&'a str, String)>) -> Self {
        let fields = fields.into_iter().map(|(name, value)| (name.to_owned(), value));
        Self {
            fields: fields.collect(),
            ..Self::default()
        }
    }

    /// The value of a field, without blanks around it; empty when there is none.
    pub(crate) fn value(&self, name: &str) -> &str {
        let found = self.fields.iter().find(|(it, _)| it == name);
        found.map(|(_, value)| value.trim()).unwrap_or_default()
    }

    /// All values of a field.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.fields
            .iter()
            .filter(move |(it, _)| it == name)
            .map(|(_, value)| value.trim())
    }

    /// Whether a field has this value: a box is ticked, an option chosen.
    pub(crate) fn has(&self, name: &str, value: &str) -> bool {
        self.all(name).any(|it| it == value)
    }

    /// Whether a box is ticked.
    pub(crate) fn is_set(&self, name: &str) -> bool {
        !matches!(self.value(name), "" | "0")
    }

    /// The value of a field that may be left empty.
    pub(crate) fn filled(&self, name: &str) -> Option<String> {
        Some(self.value(name).to_owned()).filter(|value| !value.is_empty())
    }

    /// Notes which revision of an object fills the form.
    pub(crate) fn remember(mut self, model: &Model, kind: Kind, key: &str) -> Self {
        let revision = model.revision(kind, key).unwrap_or_default();
        self.set("revision", revision.to_string());
        self
    }

    /// What filled the form must still be what is there: nobody overwrites what they have not seen.
    pub(crate) fn conditions(&self, kind: Kind, key: &str) -> Vec<Precondition> {
        let revision = self.value("revision").parse().ok();
        revision
            .map(|revision| Precondition::Revision(kind, key.to_owned(), revision))
            .into_iter()
            .collect()
    }

    /// Every field but the proof: what has to be sent again to repeat the form.
    pub(crate) fn fields(&self) -> Vec<(String, String)> {
        self.fields
            .iter()
            .filter(|(name, _)| name != PROOF)
            .cloned()
            .collect()
    }

    /// Sets a field.
    pub(crate) fn set(&mut self, name: &str, value: impl Into<String>) {
        self.fields.retain(|(it, _)| it != name);
        self.fields.push((name.to_owned(), value.into()));
    }

    /// A secret, when one was written. It is never in the form that is shown again.
    pub(crate) fn secret(&self, name: &str) -> Option<SecretText> {
        let found = self.secrets.iter().find(|(it, _)| it == name);
        found
            .map(|(_, secret)| secret.clone())
            .filter(|secret| !secret.expose().is_empty())
    }

    /// Whether it brings a secret.
    pub(crate) fn has_secrets(&self) -> bool {
        self.secrets.iter().any(|(_, secret)| !secret.expose().is_empty())
    }

    /// What is wrong with a field.
    pub(crate) fn complaint(&self, name: &str) -> Option<&Complaint> {
        self.complaints
            .iter()
            .find(|(it, _)| it == name)
            .map(|(_, complaint)| complaint)
    }

    /// Whether something is wrong.
    pub(crate) fn is_bad(&self) -> bool {
        !self.complaints.is_empty() || self.banner.is_some()
    }

    /// Says what is wrong with a field.
    pub(crate) fn complain(&mut self, name: &str, problem: impl Into<String>, fix: impl Into<String>) {
        let complaint = Complaint {
            problem: problem.into(),
            fix: fix.into(),
        };
        self.complaints.push((name.to_owned(), complaint));
    }

    /// Reads a field that must be there; what is wrong with it is noted.
    pub(crate) fn parse<T: FromStr<Err: ToString>>(&mut self, name: &str) -> Option<T> {
        if self.value(name).is_empty() {
            self.complain(name, "is missing", "fill it in");
            return None;
        }
        match self.value(name).parse() {
            Ok(value) => Some(value),
            Err(problem) => {
                self.complain(name, problem.to_string(), "");
                None
            }
        }
    }

    /// Reads a field that may be left empty.
    pub(crate) fn parse_filled<T: FromStr<Err: ToString>>(&mut self, name: &str) -> Option<T> {
        if self.value(name).is_empty() {
            None
        } else {
            self.parse(name)
        }
    }

    /// Takes a refusal: problems whose place belongs to a field go beside it, all else to the top. `place` finds the field
    /// for the path of a problem.
    pub(crate) fn refuse<'a>(&mut self, refusal: &Refusal, place: impl Fn(&str) -> Option<&'a str>) {
        let mut details = refusal.details().clone();
        let all = std::mem::take(&mut details.problems);
        let had_problems = !all.is_empty();
        let mut rest: Vec<Problem> = Vec::new();
        for problem in all {
            match place(&problem.path) {
                Some(field) => self.complain(field, problem.problem, problem.fix),
                None => rest.push(problem),
            }
        }
        if had_problems && rest.is_empty() {
            return;
        }
        details.problems = rest;
        self.banner = Some(details);
    }
}

impl FromRequest<Web> for Form {
    type Rejection = Refusal;

    async fn from_request(request: Request, web: &Web) -> Result<Self, Refusal> {
        let read = axum::Form::<Vec<(String, String)>>::from_request(request, web).await;
        let axum::Form(all) = read.map_err(|error| {
            Refusal::malformed(Problem::new(
                "form",
                error.body_text(),
                "send the form of the page again",
            ))
        })?;
        let mut form = Self::default();
        for (name, value) in all {
            if is_secret(&name) {
                form.secrets.push((name, SecretText::new(value)));
            } else {
                form.fields.push((name, value));
            }
        }
        Ok(form)
    }
}

/// Whether a request brings a form of a page.
pub(crate) fn is_form(headers: &HeaderMap) -> bool {
    let kind = headers
        .get(header::CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok())
        .unwrap_or_default();
    kind.split(';').next().is_some_and(|kind| {
        kind.trim()
            .eq_ignore_ascii_case("application/x-www-form-urlencoded")
    })
}

/// The proof in a form that it came from our page.
pub(crate) fn proof_in(body: &[u8]) -> Option<String> {
    let uri = format!("/?{}", std::str::from_utf8(body).ok()?).parse().ok()?;
    let axum::extract::Query(fields) =
        axum::extract::Query::<Vec<(String, String)>>::try_from_uri(&uri).ok()?;
    fields
        .into_iter()
        .find(|(name, _)| name == PROOF)
        .map(|(_, value)| value)
}

fn is_secret(name: &str) -> bool {
    ["secret", "password", "token"]
        .iter()
        .any(|word| name.contains(word))
}

/// The field with the proof.
pub(super) const PROOF: &str = "csrf";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_go_beside_the_field_that_their_place_belongs_to() {
        let mut form = Form::of([("alias", "x".to_owned())]);
        let problems = vec![
            Problem::new("targets/a/alias", "is too long", "shorten it"),
            Problem::new("luns/a/0", "is elsewhere", "look there"),
        ];
        form.refuse(&Refusal::invalid(problems), |path| {
            path.ends_with("/alias").then_some("alias")
        });
        assert_eq!(form.complaint("alias").unwrap().fix, "shorten it");
        assert_eq!(form.banner.as_ref().unwrap().problems.len(), 1);
        assert!(form.is_bad());
    }

    #[test]
    fn the_proof_is_found_among_escaped_fields() {
        assert_eq!(
            proof_in(b"a=%26csrf%3Dno&csrf=y%2Bes&b=%3C").as_deref(),
            Some("y+es")
        );
        assert_eq!(proof_in(b"a=1"), None);
        assert_eq!(proof_in(b"\xff"), None);
    }
}
