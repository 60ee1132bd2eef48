//! A CHAP credential. Its secret goes in, and never comes out: the form of one that is there has an empty field, which
//! left empty keeps the secret.

use askama::Template;
use axum::extract::{Path, State};
use axum::response::Response;
use management::control::{Change, ChangeError, Edit, Precondition};
use management::model::{Credential, Id, Kind};

use super::{Use, credential_href, uses};
use crate::ui::confirm::Confirm;
use crate::ui::form::Form;
use crate::ui::frame::{Frame, Section, form_again, page};
use crate::ui::notice;
use crate::ui::visitor::{OperatorVisitor, Visitor};
use crate::{Refusal, Web};

#[derive(Template)]
#[template(path = "initiators/credential.html")]
struct EditPage {
    frame: Frame,
    form: Form,
    is_new: bool,
    action: String,
    uses: Vec<Use>,
}

pub(super) async fn new_page(State(web): State<Web>, OperatorVisitor(visitor): OperatorVisitor) -> Response {
    page(&filled(&web, &visitor, Form::default(), None))
}

pub(super) async fn create(
    State(web): State<Web>,
    OperatorVisitor(visitor): OperatorVisitor,
    mut form: Form,
) -> Response {
    let id = form.parse::<Id>("id");
    let name = form.parse::<String>("name");
    if form.secret("secret").is_none() {
        form.complain("secret", "is missing", "write one of 12 to 16 characters");
    }
    let (Some(id), Some(name), Some(secret)) = (id, name, form.secret("secret")) else {
        return form_again(&filled(&web, &visitor, form, None));
    };
    let credential = Credential {
        id: id.clone(),
        name,
        secret: Some(secret),
    };
    let preconditions = vec![Precondition::Absent(Kind::Credential, id.to_string())];
    let change = Change {
        preconditions,
        ..Change::of(vec![Edit::Put(credential.into())])
    };
    match web.control().change(&visitor.actor, change).await {
        Ok(_) => notice::done(
            &format!("Credential {id} is kept. Choose it at a target or initiator."),
            "/initiators",
        ),
        Err(error) => {
            refuse(&mut form, error);
            form_again(&filled(&web, &visitor, form, None))
        }
    }
}

pub(super) async fn edit_page(
    State(web): State<Web>,
    visitor: Visitor,
    Path(id): Path<String>,
) -> Result<Response, Refusal> {
    let model = web.control().model();
    let credential = model
        .get::<Credential>(&id)
        .ok_or_else(|| Refusal::not_found("credential"))?;
    let form = Form::of([("name", credential.name.clone())]).remember(&model, Kind::Credential, &id);
    Ok(page(&filled(&web, &visitor, form, Some(&id))))
}

pub(super) async fn save(
    State(web): State<Web>,
    OperatorVisitor(visitor): OperatorVisitor,
    Path(id): Path<String>,
    mut form: Form,
) -> Result<Response, Refusal> {
    let model = web.control().model();
    let old = model
        .get::<Credential>(&id)
        .ok_or_else(|| Refusal::not_found("credential"))?;
    let Some(name) = form.parse::<String>("name") else {
        return Ok(form_again(&filled(&web, &visitor, form, Some(&id))));
    };
    // Without a secret the model keeps the one there is.
    let credential = Credential {
        id: old.id.clone(),
        name,
        secret: form.secret("secret"),
    };
    let change = Change {
        preconditions: form.conditions(Kind::Credential, &id),
        ..Change::of(vec![Edit::Put(credential.into())])
    };
    match web.control().change(&visitor.actor, change).await {
        Ok(_) => Ok(notice::done("Saved. It holds for the next login.", "/initiators")),
        Err(error) => {
            refuse(&mut form, error);
            Ok(form_again(&filled(&web, &visitor, form, Some(&id))))
        }
    }
}

pub(super) async fn ask_delete(
    State(web): State<Web>,
    OperatorVisitor(visitor): OperatorVisitor,
    Path(id): Path<String>,
) -> Result<Response, Refusal> {
    web.control().preview(&deletion(&id))?;
    Ok(Confirm {
        frame: visitor.frame(Section::Initiators, format!("Delete the credential {id}?")),
        effects: vec!["Nobody can log in with it any more. Its secret cannot be brought back.".to_owned()],
        uses: Vec::new(),
        choices: Vec::new(),
        action: format!("{}/delete", credential_href(&id)),
        hidden: Vec::new(),
        verb: "Delete the credential".to_owned(),
        back: credential_href(&id),
    }
    .ask())
}

pub(super) async fn delete(
    State(web): State<Web>,
    OperatorVisitor(visitor): OperatorVisitor,
    Path(id): Path<String>,
) -> Result<Response, Refusal> {
    web.control().change(&visitor.actor, deletion(&id)).await?;
    Ok(notice::done(
        &format!("Credential {id} is deleted."),
        "/initiators",
    ))
}

fn deletion(id: &str) -> Change {
    Change::of(vec![Edit::Delete(Kind::Credential, id.to_owned())])
}

fn refuse(form: &mut Form, error: ChangeError) {
    if let ChangeError::Exists(_) = error {
        form.complain(
            "id",
            "is there already",
            "use another one, or change the one that is there",
        );
        return;
    }
    form.refuse(&Refusal::from(error), |path| {
        let (_, field) = path.strip_prefix("credentials/")?.split_once('/')?;
        match field {
            "name" => Some("name"),
            "secret" => Some("secret"),
            _ => None,
        }
    });
}

fn filled(web: &Web, visitor: &Visitor, form: Form, known: Option<&str>) -> EditPage {
    let model = web.control().model();
    let credential = known.and_then(|id| model.get::<Credential>(id));
    EditPage {
        frame: visitor.frame(Section::Initiators, known.unwrap_or("New CHAP credential")),
        form,
        is_new: known.is_none(),
        action: known.map_or_else(|| "/new/credential".to_owned(), credential_href),
        uses: credential.map(|it| uses(&model, it)).unwrap_or_default(),
    }
}
