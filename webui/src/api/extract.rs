//! What requests bring: queries, keys in paths, bodies and conditions; what does not fit is a problem with its place.

use axum::body::Bytes;
use axum::extract::{FromRequestParts, Path, Query};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use management::control::Precondition;
use management::model::{Kind, Problem};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

use crate::Refusal;

/// The query.
#[derive(Debug)]
pub(super) struct Params<T>(pub(super) T);

/// The key in the path; of several parts, they are joined as keys of the model are.
#[derive(Debug)]
pub(super) struct Key(pub(super) String);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Params<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        let query = Query::<T>::try_from_uri(&parts.uri).map_err(|error| {
            let fix = "see the parameters of this path in the API's description";
            Refusal::malformed(Problem::new("query", error.body_text(), fix))
        })?;
        Ok(Self(query.0))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Key {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let path = Path::<Vec<(String, String)>>::from_request_parts(parts, state).await;
        let Path(path) = path.map_err(|error| {
            let fix = "write the name of the object in UTF-8, percent-encoded where needed";
            Refusal::malformed(Problem::new("path", error.body_text(), fix))
        })?;
        let parts: Vec<String> = path
            .into_iter()
            .map(|(_, value)| value.to_ascii_lowercase())
            .collect();
        Ok(Self(parts.join("/")))
    }
}

/// A JSON body.
pub(super) fn parse<T: DeserializeOwned>(body: &Bytes) -> Result<T, Refusal> {
    let mut json = serde_json::Deserializer::from_slice(body);
    let value = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let (path, text) = (error.path().to_string(), error.inner().to_string());
        let has_path = error.inner().is_data() && path != ".";
        let problem = if has_path { without_place(&text) } else { text };
        Refusal::malformed(Problem::new(path, problem, SCHEMA_FIX))
    })?;
    json.end()
        .map_err(|error| Refusal::malformed(Problem::new(".", error.to_string(), SCHEMA_FIX)))?;
    Ok(value)
}

/// Where a path says where it is: line and column are of a text that few have seen.
fn without_place(problem: &str) -> String {
    let place = problem.rsplit_once(" at line ").filter(|(_, place)| {
        place
            .chars()
            .all(|letter| letter.is_ascii_digit() || " column".contains(letter))
    });
    place.map_or(problem, |(text, _)| text).to_owned()
}

/// What `If-Match` and `If-None-Match` ask for.
pub(super) fn conditions(headers: &HeaderMap, kind: Kind, key: &str) -> Result<Vec<Precondition>, Refusal> {
    let mut conditions = Vec::new();
    match tag(headers, &header::IF_MATCH)? {
        None => {}
        Some(Tag::Any) => conditions.push(Precondition::Present(kind, key.to_owned())),
        Some(Tag::Number(revision)) => {
            conditions.push(Precondition::Revision(kind, key.to_owned(), revision));
        }
    }
    match tag(headers, &header::IF_NONE_MATCH)? {
        Some(Tag::Any) => conditions.push(Precondition::Absent(kind, key.to_owned())),
        None | Some(Tag::Number(_)) => {}
    }
    Ok(conditions)
}

/// What `If-Match` asks of the whole configuration.
pub(super) fn generation(headers: &HeaderMap) -> Result<Vec<Precondition>, Refusal> {
    Ok(match tag(headers, &header::IF_MATCH)? {
        Some(Tag::Number(generation)) => vec![Precondition::Generation(generation)],
        None | Some(Tag::Any) => Vec::new(),
    })
}

/// A revision or generation as an entity tag.
pub(super) fn etag(number: u64) -> String {
    format!("\"{number}\"")
}

enum Tag {
    Any,
    Number(u64),
}

fn tag(headers: &HeaderMap, name: &header::HeaderName) -> Result<Option<Tag>, Refusal> {
    let Some(value) = headers.get(name) else {
        return Ok(None);
    };
    let text = value.to_str().unwrap_or_default().trim();
    if text == "*" {
        return Ok(Some(Tag::Any));
    }
    let number = text.strip_prefix("W/").unwrap_or(text).trim_matches('"').parse();
    number.map(|number| Some(Tag::Number(number))).map_err(|_| {
        let problem = format!("{text:?} is none of our entity tags");
        Refusal::malformed(Problem::new(
            name.as_str(),
            problem,
            "send the ETag of the answer you changed, or *",
        ))
    })
}

/// `?force`, `?force=true` and `?force=1` are all yes.
pub(super) fn flag<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    let text = String::deserialize(deserializer)?;
    match text.as_str() {
        "" | "1" | "true" | "yes" => Ok(true),
        "0" | "false" | "no" => Ok(false),
        _ => Err(serde::de::Error::custom("wants true or false")),
    }
}

const SCHEMA_FIX: &str = "see the schema of this body in the API's description";
