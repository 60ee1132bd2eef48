//! Portals: where initiators come in.

use std::net::SocketAddr;

use askama::Template;
use axum::Router;
use axum::extract::{Path, State};
use axum::response::Response;
use axum::routing::get;
use management::control::{Change, ChangeError, Edit, Precondition};
use management::model::{Id, Kind, Portal, Transport};

use crate::ui::form::Form;
use crate::ui::frame::{Frame, Section, form_again, page};
use crate::ui::notice;
use crate::ui::sure::Sure;
use crate::ui::visitor::{OperatorVisitor, Visitor};
use crate::{Refusal, Web};

#[derive(Template)]
#[template(path = "settings_portal.html")]
struct PortalPage {
    frame: Frame,
    form: Form,
    /// Empty for one that is to be made.
    id: String,
}

pub(super) fn routes() -> Router<Web> {
    Router::new()
        .route("/settings/portals/new", get(new).post(create))
        .route("/settings/portals/{id}", get(edit).post(change))
        .route("/settings/portals/{id}/delete", get(ask).post(delete))
}

async fn new(OperatorVisitor(visitor): OperatorVisitor) -> Response {
    let fields = [
        ("portal_group", "1".to_owned()),
        ("transport", "tcp".to_owned()),
        ("enabled", "1".to_owned()),
    ];
    page(&shown(&visitor, Form::of(fields), ""))
}

async fn create(
    State(web): State<Web>,
    OperatorVisitor(visitor): OperatorVisitor,
    mut form: Form,
) -> Result<Response, Refusal> {
    let id = form.parse::<Id>("id");
    let made = read(&mut form, id);
    let absent = |portal: &Portal| Precondition::Absent(Kind::Portal, portal.id.to_string());
    save(&web, &visitor, form, "", made, absent).await
}

async fn edit(
    State(web): State<Web>,
    OperatorVisitor(visitor): OperatorVisitor,
    Path(id): Path<String>,
) -> Result<Response, Refusal> {
    let model = web.control().model();
    let portal = model
        .get::<Portal>(&id)
        .ok_or_else(|| Refusal::not_found("portal"))?;
    let transport = match portal.transport {
        Transport::Iser => "iser",
        Transport::Tcp => "tcp",
    };
    let form = Form::of([
        ("address", portal.address.to_string()),
        ("portal_group", portal.portal_group.to_string()),
        ("transport", transport.to_owned()),
        ("enabled", if portal.enabled { "1" } else { "" }.to_owned()),
    ]);
    Ok(page(&shown(&visitor, form, &id)))
}

async fn change(
    State(web): State<Web>,
    OperatorVisitor(visitor): OperatorVisitor,
    Path(id): Path<String>,
    mut form: Form,
) -> Result<Response, Refusal> {
    let model = web.control().model();
    let portal = model
        .get::<Portal>(&id)
        .ok_or_else(|| Refusal::not_found("portal"))?;
    let made = read(&mut form, Some(portal.id.clone()));
    let present = |portal: &Portal| Precondition::Present(Kind::Portal, portal.id.to_string());
    save(&web, &visitor, form, &id, made, present).await
}

async fn ask(
    State(web): State<Web>,
    OperatorVisitor(visitor): OperatorVisitor,
    Path(id): Path<String>,
) -> Result<Response, Refusal> {
    let model = web.control().model();
    let portal = model
        .get::<Portal>(&id)
        .ok_or_else(|| Refusal::not_found("portal"))?;
    Ok(page(&Sure {
        frame: visitor.frame(Section::Settings, format!("Delete portal {id}")),
        effects: vec![
            format!(
                "Nobody can log in at {} any more, and discovery does not name it.",
                portal.address
            ),
            "Sessions that came in by it go on. When their connection is lost they need another way."
                .to_owned(),
        ],
        action: format!("/settings/portals/{id}/delete"),
        hidden: Vec::new(),
        verb: "Delete the portal",
        back: "/settings",
    }))
}

async fn delete(
    State(web): State<Web>,
    OperatorVisitor(visitor): OperatorVisitor,
    Path(id): Path<String>,
) -> Result<Response, Refusal> {
    let edits = vec![Edit::Delete(Kind::Portal, id.clone())];
    web.control().change(&visitor.actor, Change::of(edits)).await?;
    Ok(notice::done(&format!("Portal {id} is deleted."), "/settings"))
}

/// The portal that a form describes, when nothing is wrong with it.
fn read(form: &mut Form, id: Option<Id>) -> Option<Portal> {
    let address = form.value("address").parse::<SocketAddr>().ok();
    if address.is_none() {
        form.complain(
            "address",
            "is no address with a port",
            "write for example 192.0.2.1:3260 or [2001:db8::1]:3260",
        );
    }
    let portal_group = form.parse::<u16>("portal_group").filter(|group| *group > 0);
    if portal_group.is_none() && form.complaint("portal_group").is_none() {
        form.complain("portal_group", "is no tag", "use 1 to 65535");
    }
    let transport = if form.has("transport", "iser") {
        Transport::Iser
    } else {
        Transport::Tcp
    };
    Some(Portal {
        id: id?,
        address: address?,
        portal_group: portal_group?,
        transport,
        enabled: form.is_set("enabled"),
    })
}

async fn save(
    web: &Web,
    visitor: &Visitor,
    mut form: Form,
    id: &str,
    made: Option<Portal>,
    condition: impl Fn(&Portal) -> Precondition,
) -> Result<Response, Refusal> {
    if let Some(portal) = made {
        let name = portal.id.to_string();
        let change = Change {
            preconditions: vec![condition(&portal)],
            edits: vec![Edit::Put(portal.into())],
            ..Change::default()
        };
        match web.control().change(&visitor.actor, change).await {
            Ok(_) => return Ok(notice::done(&format!("Portal {name} is saved."), "/settings")),
            Err(ChangeError::Exists(_)) => {
                form.complain("id", "is another portal's", "choose another name");
            }
            Err(error) => form.refuse(&Refusal::from(error), field),
        }
    }
    Ok(form_again(&shown(visitor, form, id)))
}

/// The field that a problem's place belongs to.
fn field(path: &str) -> Option<&'static str> {
    let last = path.rsplit('/').next()?;
    ["address", "portal_group", "transport"]
        .into_iter()
        .find(|it| *it == last)
}

fn shown(visitor: &Visitor, form: Form, id: &str) -> PortalPage {
    let title = if id.is_empty() {
        "New portal".to_owned()
    } else {
        format!("Portal {id}")
    };
    PortalPage {
        frame: visitor.frame(Section::Settings, title),
        form,
        id: id.to_owned(),
    }
}
