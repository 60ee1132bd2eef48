//! The whole configuration: exported, compared with what a document says, and made so.
//!
//! A document that was compared waits here until it is applied, so that what is applied is what was seen, and secrets in
//! it do not travel to the browser and back.

mod waiting;

use askama::Template;
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use management::control::{Change, ChangeError, Precondition};
use management::diff::Action;
use management::document::Document;
use management::live::InUse;
use management::model::{Initiator, LunMap, Model, Store, Target};

use super::difference::ChangedObject;
use super::form::Form;
use super::frame::{Frame, Section, form_again, page, page_with};
use super::visitor::{AdminVisitor, OperatorVisitor, Visitor};
use super::{notice, show};
use crate::{Refusal, Web};

pub(crate) use waiting::WaitingImports;

use waiting::Waiting;

#[derive(Template)]
#[template(path = "configuration.html")]
struct ConfigurationPage {
    frame: Frame,
    form: Form,
    generation: u64,
    summary: String,
}

#[derive(Template)]
#[template(path = "configuration_compare.html")]
struct ComparePage {
    frame: Frame,
    /// What waits to be applied.
    import: String,
    prune: bool,
    summary: String,
    objects: Vec<ChangedObject>,
    /// Different objects that are not shown.
    left_out: usize,
    /// What sessions would lose; known after the first try.
    uses: Vec<InUse>,
}

pub(super) fn routes() -> Router<Web> {
    Router::new()
        .route("/configuration", get(overview))
        .route("/configuration/export", get(export).post(export_secrets))
        .route(
            "/configuration/compare",
            post(compare).get(async || Redirect::to("/configuration")),
        )
        .route(
            "/configuration/apply",
            post(apply).get(async || Redirect::to("/configuration")),
        )
}

async fn overview(State(web): State<Web>, visitor: Visitor) -> Response {
    page(&overview_of(&web, &visitor, Form::default()))
}

fn overview_of(web: &Web, visitor: &Visitor, form: Form) -> ConfigurationPage {
    let model = web.control().model();
    ConfigurationPage {
        frame: visitor.frame(Section::Configuration, "Configuration"),
        form,
        generation: model.generation,
        summary: counted(&model),
    }
}

async fn export(State(web): State<Web>, _visitor: Visitor) -> Response {
    file(&serde_json::json!(Document::of(&web.control().model())))
}

async fn export_secrets(State(web): State<Web>, AdminVisitor(visitor): AdminVisitor) -> Response {
    let document = Document::of(&web.control().model());
    web.control().secrets_shown(&visitor.actor);
    file(&document.with_secrets())
}

fn file(document: &serde_json::Value) -> Response {
    let text = serde_json::to_string_pretty(document).expect("a value has a JSON form");
    let headers = [
        (header::CONTENT_TYPE, "application/json"),
        (
            header::CONTENT_DISPOSITION,
            "attachment; filename=\"lunaport.json\"",
        ),
    ];
    (headers, text + "\n").into_response()
}

async fn compare(
    State(web): State<Web>,
    OperatorVisitor(visitor): OperatorVisitor,
    mut form: Form,
) -> Result<Response, Refusal> {
    let text = form.value("document").to_owned();
    let prune = form.is_set("prune");
    // It may have secrets in it, and is not sent back.
    form.set("document", "");
    let document = match Document::parse(text.as_bytes()) {
        _ if text.is_empty() => {
            form.complain("document", "is missing", "choose a file, or paste the document");
            return Ok(again(&web, &visitor, form));
        }
        Ok(document) => document,
        Err(problem) => {
            form.complain(
                "document",
                format!("{}: {}", problem.path, problem.problem),
                problem.fix,
            );
            return Ok(again(&web, &visitor, form));
        }
    };
    let generation = web.control().model().generation;
    let dry_run = Change {
        dry_run: true,
        ..Change::default()
    };
    match web
        .control()
        .apply(&visitor.actor, document.clone(), prune, dry_run)
        .await
    {
        Ok(outcome) => {
            let waiting = Waiting {
                document,
                prune,
                generation,
                owner: visitor.actor.to_string(),
            };
            let import = web.imports().keep(waiting, web.control().entropy());
            let page_ = compared(&visitor, import, prune, &outcome.differences, Vec::new());
            Ok(page(&page_))
        }
        Err(error) => {
            form.refuse(&Refusal::from(error), |_| None);
            Ok(again(&web, &visitor, form))
        }
    }
}

async fn apply(
    State(web): State<Web>,
    OperatorVisitor(visitor): OperatorVisitor,
    form: Form,
) -> Result<Response, Refusal> {
    let import = form.value("import").to_owned();
    let Some(waiting) = web.imports().take(&import, &visitor.actor.to_string()) else {
        let mut form = Form::default();
        form.complain("document", "does not wait any more", "compare it once more");
        return Ok(again(&web, &visitor, form));
    };
    let change = |dry_run| Change {
        preconditions: vec![Precondition::Generation(waiting.generation)],
        force: form.is_set("force"),
        dry_run,
        ..Change::default()
    };
    let document = || waiting.document.clone();
    match web
        .control()
        .apply(&visitor.actor, document(), waiting.prune, change(false))
        .await
    {
        Ok(outcome) => {
            let what = show::count(outcome.differences.len(), "object was", "objects were");
            Ok(notice::done(
                &format!("{what} made what the document says."),
                "/configuration",
            ))
        }
        Err(ChangeError::InUse(uses)) => {
            let outcome = web
                .control()
                .apply(&visitor.actor, document(), waiting.prune, change(true))
                .await?;
            let prune = waiting.prune;
            let import = web.imports().keep(waiting, web.control().entropy());
            let page_ = compared(&visitor, import, prune, &outcome.differences, uses);
            Ok(page_with(StatusCode::CONFLICT, &page_))
        }
        Err(error) => {
            let mut form = Form::default();
            form.refuse(&Refusal::from(error), |_| None);
            Ok(again(&web, &visitor, form))
        }
    }
}

fn again(web: &Web, visitor: &Visitor, form: Form) -> Response {
    form_again(&overview_of(web, visitor, form))
}

fn compared(
    visitor: &Visitor,
    import: String,
    prune: bool,
    differences: &[management::diff::Difference],
    uses: Vec<InUse>,
) -> ComparePage {
    let of = |action| differences.iter().filter(|it| it.action == action).count();
    ComparePage {
        frame: visitor.frame(Section::Configuration, "What would be different"),
        import,
        prune,
        summary: format!(
            "{} to create, {} to change, {} to delete",
            of(Action::Create),
            of(Action::Change),
            of(Action::Delete)
        ),
        objects: differences.iter().take(SHOWN).map(ChangedObject::of).collect(),
        left_out: differences.len().saturating_sub(SHOWN),
        uses,
    }
}

impl ComparePage {
    /// Whether it could be done, if need be with force.
    fn may_be_done(&self) -> bool {
        self.uses.iter().all(|it| it.forcible)
    }
}

fn counted(model: &Model) -> String {
    [
        show::count(model.all::<Target>().count(), "target", "targets"),
        show::count(model.all::<LunMap>().count(), "LUN", "LUNs"),
        show::count(model.all::<Store>().count(), "store", "stores"),
        show::count(model.all::<Initiator>().count(), "initiator", "initiators"),
    ]
    .join(", ")
}

/// Different objects shown one by one.
const SHOWN: usize = 500;
