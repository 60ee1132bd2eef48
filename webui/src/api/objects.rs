//! The objects of the configuration: the same five verbs for every kind.

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, patch, post, put};
use management::control::{Change, Edit, Outcome, Precondition};
use management::model::{
    AccessRule, AdvertisedAddress, AnyObject, Credential, Initiator, InitiatorGroup, Kind, LunMap, Object,
    Portal, Problem, Settings, Store, Target, Unit,
};
use serde::{Deserialize, Serialize};
use utoipa::openapi::path::HttpMethod;
use utoipa::openapi::schema::Type;

use super::config::Diff;
use super::extract::{Key, Params, conditions, etag, flag, parse};
use super::routes::{Described, Routes};
use crate::who::{Operator, Viewer};
use crate::{Refusal, Web};

/// Some of a list's objects.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Page<T> {
    /// The objects, by key.
    pub items: Vec<T>,
    /// How many there are in all.
    pub total: usize,
    /// For `after` of the next request; left out at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// The query of a deletion.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeleteQuery {
    /// Even when sessions lose something.
    #[serde(default, deserialize_with = "flag")]
    pub force: bool,
    /// The diff alone.
    #[serde(default, rename = "dry-run", deserialize_with = "flag")]
    pub dry_run: bool,
    /// Remove a store's file as well.
    #[serde(default, rename = "delete-data", deserialize_with = "flag")]
    pub delete_data: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    #[serde(default = "default_limit")]
    limit: usize,
    after: Option<String>,
    target: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChangeQuery {
    #[serde(default, deserialize_with = "flag")]
    force: bool,
    #[serde(default, rename = "dry-run", deserialize_with = "flag")]
    dry_run: bool,
}

/// Adds the routes of every kind.
pub(super) fn add_all(routes: &mut Routes) {
    add::<Target>(routes, "target", &["name"]);
    add::<LunMap>(routes, "LUN", &["target", "lun"]);
    add::<Unit>(routes, "logical unit", &["id"]);
    add::<Store>(routes, "store", &["id"]);
    add::<Portal>(routes, "portal", &["id"]);
    add::<AdvertisedAddress>(routes, "advertised address", &["id"]);
    add::<AccessRule>(routes, "access rule", &["id"]);
    add::<Initiator>(routes, "initiator", &["name"]);
    add::<InitiatorGroup>(routes, "group", &["id"]);
    add::<Credential>(routes, "credential", &["id"]);
    add_settings(routes);
}

fn add<T: Object>(routes: &mut Routes, word: &str, key: &[&str]) {
    let kind = T::KIND.path();
    let list = format!("/{kind}");
    let one = key
        .iter()
        .fold(list.clone(), |path, part| format!("{path}/{{{part}}}"));
    let new = |verb: &str, summary: &str| Described::new(kind, format!("{verb}_{kind}"), summary);
    let keyed = |described: Described| {
        key.iter()
            .fold(described, |it, part| it.in_path(part, "key of the object"))
    };
    let listed = new("list", &format!("List every {word}"))
        .in_query("limit", "objects at once, 1 to 1000", Type::Integer)
        .in_query("after", "key to go on after", Type::String)
        .in_query("target", "only those of this target", Type::String)
        .gives_page::<T>("Some of them, by key");
    routes.add(HttpMethod::Get, &list, get(list_objects::<T>), listed);
    let made = changing(new("create", &format!("Make a {word}")))
        .takes::<T>("application/json")
        .gives::<T>("201", "Made")
        .gives::<Diff>("200", "What a dry run would do");
    routes.add(HttpMethod::Post, &list, post(create::<T>), made);
    let read = keyed(new("read", &format!("Show a {word}"))).gives::<T>("200", "As it is");
    routes.add(HttpMethod::Get, &one, get(read_object::<T>), read);
    let replaced = conditional(changing(keyed(new(
        "replace",
        &format!("Make a {word} what the body says"),
    ))))
    .takes::<T>("application/json")
    .gives_or_diff::<T>("200", "As it is now")
    .gives::<T>("201", "Made");
    routes.add(HttpMethod::Put, &one, put(replace::<T>), replaced);
    let patched = conditional(changing(keyed(new(
        "change",
        &format!("Change some of a {word} (RFC 7396)"),
    ))))
    .takes::<serde_json::Value>("application/merge-patch+json")
    .gives_or_diff::<T>("200", "As it is now");
    routes.add(HttpMethod::Patch, &one, patch(merge::<T>), patched);
    let deleted = conditional(changing(keyed(new(
        "delete",
        &format!("Delete a {word}; nothing happens when there is none"),
    ))))
    .in_query("delete-data", "remove the file of a store as well", Type::Boolean)
    .gives_nothing("204", "It is not there")
    .gives::<Diff>("200", "What a dry run would do");
    routes.add(HttpMethod::Delete, &one, delete(remove::<T>), deleted);
}

/// One object that is always there.
fn add_settings(routes: &mut Routes) {
    let new = |verb: &str, summary: &str| Described::new("settings", format!("{verb}_settings"), summary);
    let read = new("read", "Show what holds for the node").gives::<Settings>("200", "As it is");
    routes.add(HttpMethod::Get, "/settings", get(read_settings), read);
    let replaced = conditional(changing(new(
        "replace",
        "Make what holds for the node what the body says",
    )))
    .takes::<Settings>("application/json")
    .gives_or_diff::<Settings>("200", "As it is now");
    routes.add(HttpMethod::Put, "/settings", put(replace_settings), replaced);
}

fn changing(described: Described) -> Described {
    described
        .in_query(
            "force",
            "do it even where sessions lose something by it",
            Type::Boolean,
        )
        .in_query("dry-run", "say what would be done, and do nothing", Type::Boolean)
}

fn conditional(described: Described) -> Described {
    described
        .header("If-Match", "ETag that the object must have")
        .header("If-None-Match", "* when there must be none")
}

async fn list_objects<T: Object>(
    State(web): State<Web>,
    _who: Viewer,
    Params(query): Params<ListQuery>,
) -> Result<Json<Page<serde_json::Value>>, Refusal> {
    if !(1..=LIMIT_MAX).contains(&query.limit) {
        let problem = format!("{} objects cannot be listed at once", query.limit);
        return Err(Refusal::malformed(Problem::new(
            "limit",
            problem,
            "use 1 to 1000",
        )));
    }
    let model = web.control().model();
    let shown = |object: &T| serde_json::to_value(object).expect("plain values have a JSON form");
    let wanted = |object: &T| {
        let Some(target) = &query.target else { return true };
        shown(object).get("target").and_then(|it| it.as_str()) == Some(&target.to_ascii_lowercase())
    };
    let table = T::table(&model);
    let all = table.iter().filter(|(_, stored)| wanted(&stored.value));
    let total = if query.target.is_none() {
        table.len()
    } else {
        all.clone().count()
    };
    let mut rest = all
        .skip_while(|(key, _)| query.after.as_ref().is_some_and(|after| *key <= after))
        .peekable();
    let mut items = Vec::new();
    let mut last = None;
    while items.len() < query.limit {
        let Some((key, stored)) = rest.next() else { break };
        items.push(shown(&stored.value));
        last = Some(key.clone());
    }
    let next = last.filter(|_| rest.peek().is_some());
    Ok(Json(Page { items, total, next }))
}

async fn read_object<T: Object>(
    State(web): State<Web>,
    _who: Viewer,
    Key(key): Key,
) -> Result<Response, Refusal> {
    shown::<T>(&web, &key, StatusCode::OK)
}

async fn create<T: Object>(
    State(web): State<Web>,
    Operator(actor): Operator,
    Params(query): Params<ChangeQuery>,
    body: Bytes,
) -> Result<Response, Refusal> {
    let object: T = parse(&body)?;
    let key = object.key();
    let change = Change {
        edits: vec![Edit::Put(object.into_any())],
        preconditions: vec![Precondition::Absent(T::KIND, key.clone())],
        force: query.force,
        dry_run: query.dry_run,
        delete_data: false,
    };
    let outcome = web.control().change(&actor, change).await?;
    if query.dry_run {
        return Ok(Json(Diff::from(outcome)).into_response());
    }
    let mut response = shown::<T>(&web, &key, StatusCode::CREATED)?;
    let place = format!("/api/v1/{}/{key}", T::KIND.path());
    if let Ok(place) = place.parse() {
        response.headers_mut().insert(header::LOCATION, place);
    }
    Ok(response)
}

async fn replace<T: Object>(
    State(web): State<Web>,
    Operator(actor): Operator,
    Key(key): Key,
    Params(query): Params<ChangeQuery>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Refusal> {
    let object: T = parse(&body)?;
    put_object::<T>(&web, &actor, &key, &query, &headers, object).await
}

async fn merge<T: Object>(
    State(web): State<Web>,
    Operator(actor): Operator,
    Key(key): Key,
    Params(query): Params<ChangeQuery>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Refusal> {
    let patch: serde_json::Value = parse(&body)?;
    let (revision, mut value) = {
        let model = web.control().model();
        let stored = T::table(&model)
            .get(&key)
            .ok_or_else(|| Refusal::not_found(&format!("{}/{key}", T::KIND.path())))?;
        (
            stored.revision,
            serde_json::to_value(&stored.value).expect("plain values have a JSON form"),
        )
    };
    merge_into(&mut value, patch);
    let object: T = parse(&serde_json::to_vec(&value).expect("a value is JSON").into())?;
    // What was merged into must still be what is there.
    let unchanged = Precondition::Revision(T::KIND, key.clone(), revision);
    let mut preconditions = conditions(&headers, T::KIND, &key)?;
    preconditions.push(unchanged);
    apply::<T>(&web, &actor, &key, &query, preconditions, object).await
}

async fn put_object<T: Object>(
    web: &Web,
    actor: &management::access::Actor,
    key: &str,
    query: &ChangeQuery,
    headers: &HeaderMap,
    object: T,
) -> Result<Response, Refusal> {
    let preconditions = conditions(headers, T::KIND, key)?;
    apply::<T>(web, actor, key, query, preconditions, object).await
}

async fn apply<T: Object>(
    web: &Web,
    actor: &management::access::Actor,
    key: &str,
    query: &ChangeQuery,
    preconditions: Vec<Precondition>,
    object: T,
) -> Result<Response, Refusal> {
    if object.key() != key {
        let problem = format!("the body is of {}, the path of {key}", object.key());
        let fix = "make them the same: an object keeps its name";
        return Err(Refusal::invalid(vec![Problem::new(
            format!("{}/{key}", T::KIND.path()),
            problem,
            fix,
        )]));
    }
    let is_new = web.control().model().revision(T::KIND, key).is_none();
    let change = Change {
        edits: vec![Edit::Put(object.into_any())],
        preconditions,
        force: query.force,
        dry_run: query.dry_run,
        delete_data: false,
    };
    let outcome = web.control().change(actor, change).await?;
    if query.dry_run {
        return Ok(Json(Diff::from(outcome)).into_response());
    }
    shown::<T>(
        web,
        key,
        if is_new {
            StatusCode::CREATED
        } else {
            StatusCode::OK
        },
    )
}

async fn remove<T: Object>(
    State(web): State<Web>,
    Operator(actor): Operator,
    Key(key): Key,
    Params(query): Params<DeleteQuery>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let change = Change {
        edits: deletion(&web, T::KIND, &key),
        preconditions: conditions(&headers, T::KIND, &key)?,
        force: query.force,
        dry_run: query.dry_run,
        delete_data: query.delete_data,
    };
    let outcome = web.control().change(&actor, change).await?;
    if query.dry_run {
        return Ok(Json(Diff::from(outcome)).into_response());
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// A target goes with its LUNs and its rules, which are nothing without it. Units and stores stay.
pub(crate) fn deletion(web: &Web, kind: Kind, key: &str) -> Vec<Edit> {
    let mut edits = vec![Edit::Delete(kind, key.to_owned())];
    let model = web.control().model();
    if let Some(target) = model.get::<Target>(key).filter(|_| kind == Kind::Target) {
        edits.extend(
            model
                .luns_of(&target.name)
                .map(|map| Edit::Delete(Kind::Lun, map.key())),
        );
        edits.extend(
            model
                .access_of(&target.name)
                .map(|rule| Edit::Delete(Kind::Access, rule.key())),
        );
    }
    edits
}

async fn read_settings(State(web): State<Web>, _who: Viewer) -> Response {
    settings_shown(&web)
}

async fn replace_settings(
    State(web): State<Web>,
    Operator(actor): Operator,
    Params(query): Params<ChangeQuery>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Refusal> {
    let settings: Settings = parse(&body)?;
    let change = Change {
        edits: vec![Edit::Put(AnyObject::Settings(settings))],
        preconditions: conditions(&headers, Kind::Settings, Settings::KEY)?,
        force: query.force,
        dry_run: query.dry_run,
        delete_data: false,
    };
    let outcome: Outcome = web.control().change(&actor, change).await?;
    if query.dry_run {
        return Ok(Json(Diff::from(outcome)).into_response());
    }
    Ok(settings_shown(&web))
}

fn settings_shown(web: &Web) -> Response {
    let model = web.control().model();
    let revision = model.revision(Kind::Settings, Settings::KEY).unwrap_or(0);
    ([(header::ETAG, etag(revision))], Json(model.settings())).into_response()
}

fn shown<T: Object>(web: &Web, key: &str, status: StatusCode) -> Result<Response, Refusal> {
    let model = web.control().model();
    let stored = T::table(&model)
        .get(key)
        .ok_or_else(|| Refusal::not_found(&format!("{}/{key}", T::KIND.path())))?;
    Ok((
        status,
        [(header::ETAG, etag(stored.revision))],
        Json(&stored.value),
    )
        .into_response())
}

/// RFC 7396.
fn merge_into(value: &mut serde_json::Value, patch: serde_json::Value) {
    let serde_json::Value::Object(patch) = patch else {
        *value = patch;
        return;
    };
    if !value.is_object() {
        *value = serde_json::json!({});
    }
    let fields = value.as_object_mut().expect("it was just made one");
    for (key, patch) in patch {
        if patch.is_null() {
            fields.remove(&key);
        } else {
            merge_into(fields.entry(key).or_insert(serde_json::Value::Null), patch);
        }
    }
}

const fn default_limit() -> usize {
    100
}

const LIMIT_MAX: usize = 1000;
