//! What holds for the whole node: where stores may be, what discovery asks for, limits.

use std::collections::BTreeMap;
use std::path::PathBuf;

use askama::Template;
use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use management::control::{Change, Edit, Precondition};
use management::model::{AnyObject, Authentication, Credential, Id, Kind, Method, Settings};

use crate::ui::form::Form;
use crate::ui::frame::{Frame, Section, form_again, page};
use crate::ui::notice;
use crate::ui::visitor::{OperatorVisitor, Visitor};
use crate::{Refusal, Web};

#[derive(Template)]
#[template(path = "settings_node.html")]
struct NodePage {
    frame: Frame,
    form: Form,
    credentials: Vec<Credential>,
}

pub(super) fn routes() -> Router<Web> {
    Router::new().route("/settings/node", get(edit).post(change))
}

async fn edit(State(web): State<Web>, OperatorVisitor(visitor): OperatorVisitor) -> Response {
    let settings = web.control().model().settings();
    let roots: Vec<_> = settings
        .store_roots
        .iter()
        .map(|root| root.display().to_string())
        .collect();
    let limits: Vec<_> = settings
        .limits
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let method = match settings.discovery.method {
        Method::Chap => "chap",
        Method::None => "none",
    };
    let mut fields = vec![
        ("store_roots", roots.join("\n")),
        ("limits", limits.join("\n")),
        ("method", method.to_owned()),
    ];
    fields.extend(
        settings
            .discovery
            .credentials
            .iter()
            .map(|id| ("credentials", id.to_string())),
    );
    fields.extend(
        settings
            .discovery
            .mutual
            .iter()
            .map(|id| ("mutual", id.to_string())),
    );
    // What is saved is what was seen, or nothing.
    fields.push(("revision", revision(&web).to_string()));
    page(&shown(&web, &visitor, Form::of(fields)))
}

async fn change(
    State(web): State<Web>,
    OperatorVisitor(visitor): OperatorVisitor,
    mut form: Form,
) -> Result<Response, Refusal> {
    if let Some(settings) = read(&mut form) {
        let seen: u64 = form.value("revision").parse().unwrap_or_default();
        let condition = match seen {
            0 => Precondition::Absent(Kind::Settings, Settings::KEY.to_owned()),
            seen => Precondition::Revision(Kind::Settings, Settings::KEY.to_owned(), seen),
        };
        let change = Change {
            edits: vec![Edit::Put(AnyObject::Settings(settings))],
            preconditions: vec![condition],
            ..Change::default()
        };
        match web.control().change(&visitor.actor, change).await {
            Ok(_) => return Ok(notice::done("The settings are saved.", "/settings")),
            Err(error) => form.refuse(&Refusal::from(error), field),
        }
    }
    Ok(form_again(&shown(&web, &visitor, form)))
}

fn read(form: &mut Form) -> Option<Settings> {
    let lines = |text: &str| -> Vec<String> {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        lines.map(ToOwned::to_owned).collect()
    };
    let mut limits = BTreeMap::new();
    for line in lines(form.value("limits")) {
        let Some((name, value)) = line.split_once('=') else {
            form.complain(
                "limits",
                format!("{line:?} has no value"),
                "write NAME=VALUE, one a line",
            );
            continue;
        };
        limits.insert(name.trim().to_owned(), value.trim().to_owned());
    }
    let ids = |name: &str| -> Vec<Id> { form.all(name).filter_map(|id| id.parse().ok()).collect() };
    let discovery = Authentication {
        method: if form.has("method", "chap") {
            Method::Chap
        } else {
            Method::None
        },
        credentials: ids("credentials"),
        mutual: ids("mutual").into_iter().next(),
    };
    if form.is_bad() {
        return None;
    }
    Some(Settings {
        store_roots: lines(form.value("store_roots"))
            .into_iter()
            .map(PathBuf::from)
            .collect(),
        limits,
        discovery,
    })
}

/// The field that a problem's place belongs to.
fn field(path: &str) -> Option<&'static str> {
    ["store_roots", "limits"]
        .into_iter()
        .find(|name| path.contains(name))
}

fn shown(web: &Web, visitor: &Visitor, form: Form) -> NodePage {
    NodePage {
        frame: visitor.frame(Section::Settings, "Node settings"),
        form,
        credentials: web.control().model().all::<Credential>().cloned().collect(),
    }
}

fn revision(web: &Web) -> u64 {
    web.control()
        .model()
        .revision(Kind::Settings, Settings::KEY)
        .unwrap_or(0)
}
