//! The course that the pages of all kinds of objects have: a form makes one, the same form changes it, a question deletes
//! it. What a form asks for and how it looks is each kind's own. A form that is wrong comes back with what is wrong with
//! it; a change that sessions would feel is asked about.

use askama::Template;
use axum::Router;
use axum::extract::{FromRequestParts, Path, State};
use axum::response::Response;
use axum::routing::get;
use management::control::{Change, ChangeError, Edit, Precondition};
use management::live::InUse;
use management::model::{Model, Object};

use super::confirm::{self, Confirm, Tried};
use super::form::Form;
use super::frame::{Section, form_again, page};
use super::visitor::{OperatorVisitor, Visitor};
use super::{notice, show};
use crate::api;
use crate::{Refusal, Web};

/// A kind of object with pages to make, change and delete one.
pub(super) trait Edited: Object {
    /// Where it is in the navigation.
    const SECTION: Section;
    /// What one is called.
    const WORD: &'static str;
    /// The field of its key, in the form of a new one.
    const KEY_FIELD: &'static str;
    /// Where the form of a new one is.
    const NEW: &'static str;
    /// Where all of them are listed.
    const LIST: &'static str;
    /// What its pages are below.
    const PATH: &'static str;
    /// What follows the key in the address of its form.
    const FORM: &'static str = "";
    /// Whether sessions lose something when one goes.
    const SESSIONS_FEEL: bool = true;

    /// Where its page is.
    fn href(key: &str) -> String {
        format!("{}/{}", Self::PATH, show::segment(key))
    }

    /// Where a form is sent: that of a new one, or of one that is there.
    fn action(known: Option<&Self>) -> String {
        known.map_or_else(|| Self::NEW.to_owned(), |it| Self::href(&it.key()) + Self::FORM)
    }

    /// The form of a new one, before anything is filled in.
    fn blank() -> Form {
        Form::default()
    }

    /// The form of one that is there.
    fn form(&self, model: &Model) -> Form;

    /// What the form asks for, with what else has to be changed for it; `old` is there already. `None` when a field is
    /// wrong, which the form then says.
    fn read(form: &mut Form, model: &Model, old: Option<&Self>) -> Option<(Self, Vec<Edit>)>;

    /// The field that a problem belongs to, by its path.
    fn place(path: &str) -> Option<&'static str>;

    /// The page with the form.
    fn page(web: &Web, visitor: &Visitor, form: Form, known: Option<&Self>) -> impl Template;

    /// What is said of one that was made, and where that leads.
    fn made(key: &str) -> (String, String);

    /// What is said of one that was changed, and where that leads.
    fn saved(_key: &str) -> (String, String) {
        ("Saved.".to_owned(), Self::LIST.to_owned())
    }

    /// What is said of one that was deleted.
    fn deleted(key: &str) -> String;

    /// Everything that goes or changes with one.
    fn deletion(&self, web: &Web) -> Vec<Edit> {
        api::deletion(web, Self::KIND, &self.key())
    }

    /// What happens when one is deleted, a sentence each.
    fn effects(&self, model: &Model) -> Vec<String>;
}

/// Making, changing and deleting. `V` is who may look at the form of one that is there.
pub(super) fn routes<T: Edited, V>() -> Router<Web>
where
    V: FromRequestParts<Web, Rejection = Refusal> + Into<Visitor> + Send + 'static,
{
    let (path, form) = (T::PATH, T::FORM);
    Router::new()
        .route(T::NEW, get(new_page::<T>).post(create::<T>))
        .route(
            &format!("{path}/{{key}}{form}"),
            get(edit_page::<T, V>).post(save::<T>),
        )
        .route(
            &format!("{path}/{{key}}/delete"),
            get(ask_delete::<T>).post(delete::<T>),
        )
}

async fn new_page<T: Edited>(State(web): State<Web>, OperatorVisitor(visitor): OperatorVisitor) -> Response {
    page(&T::page(&web, &visitor, T::blank(), None))
}

async fn create<T: Edited>(
    State(web): State<Web>,
    OperatorVisitor(visitor): OperatorVisitor,
    mut form: Form,
) -> Response {
    let wanted = T::read(&mut form, &web.control().model(), None);
    let Some((object, more)) = wanted.filter(|_| !form.is_bad()) else {
        return form_again(&T::page(&web, &visitor, form, None));
    };
    let key = object.key();
    let change = Change {
        preconditions: vec![Precondition::Absent(T::KIND, key.clone())],
        ..put(object, more)
    };
    match web.control().change(&visitor.actor, change).await {
        Ok(_) => {
            let (text, place) = T::made(&key);
            notice::done(&text, &place)
        }
        Err(error) => {
            refuse::<T>(&mut form, error);
            form_again(&T::page(&web, &visitor, form, None))
        }
    }
}

async fn edit_page<T: Edited, V: Into<Visitor>>(
    State(web): State<Web>,
    visitor: V,
    Path(key): Path<String>,
) -> Result<Response, Refusal> {
    let model = web.control().model();
    let object = find::<T>(&model, &key)?;
    let form = object.form(&model).remember(&model, T::KIND, &key);
    Ok(page(&T::page(&web, &visitor.into(), form, Some(object))))
}

async fn save<T: Edited>(
    State(web): State<Web>,
    OperatorVisitor(visitor): OperatorVisitor,
    Path(key): Path<String>,
    mut form: Form,
) -> Result<Response, Refusal> {
    let model = web.control().model();
    let old = find::<T>(&model, &key)?;
    let wanted = T::read(&mut form, &model, Some(old));
    let Some((object, more)) = wanted.filter(|_| !form.is_bad()) else {
        return Ok(form_again(&T::page(&web, &visitor, form, Some(old))));
    };
    let change = Change {
        preconditions: form.conditions(T::KIND, &key),
        ..put(object, more)
    };
    match confirm::change(&web, &visitor.actor, &form, change).await {
        Tried::Done => {
            let (text, place) = T::saved(&key);
            Ok(notice::done(&text, &place))
        }
        Tried::InUse(uses) if !form.has_secrets() => Ok(Confirm {
            frame: visitor.frame(T::SECTION, "Save this change?"),
            effects: vec![format!("The {} {key} is changed as the form says.", T::WORD)],
            uses,
            feels: true,
            choices: Vec::new(),
            action: T::action(Some(old)),
            hidden: form.fields(),
            verb: "Save".to_owned(),
            back: T::href(&key),
        }
        .ask_again()),
        // A question could not bring the secret along.
        Tried::InUse(uses) => {
            refuse::<T>(&mut form, ChangeError::InUse(uses));
            Ok(form_again(&T::page(&web, &visitor, form, Some(old))))
        }
        Tried::Refused(error) => {
            refuse::<T>(&mut form, error);
            Ok(form_again(&T::page(&web, &visitor, form, Some(old))))
        }
    }
}

async fn ask_delete<T: Edited>(
    State(web): State<Web>,
    OperatorVisitor(visitor): OperatorVisitor,
    Path(key): Path<String>,
) -> Result<Response, Refusal> {
    let model = web.control().model();
    let object = find::<T>(&model, &key)?;
    let change = Change::of(object.deletion(&web));
    let uses = web.control().preview(&change)?.uses;
    Ok(question(&visitor, &model, object, uses).ask())
}

async fn delete<T: Edited>(
    State(web): State<Web>,
    OperatorVisitor(visitor): OperatorVisitor,
    Path(key): Path<String>,
    form: Form,
) -> Result<Response, Refusal> {
    let model = web.control().model();
    let object = find::<T>(&model, &key)?;
    let change = Change::of(object.deletion(&web));
    match confirm::change(&web, &visitor.actor, &form, change).await {
        Tried::Done => Ok(notice::done(&T::deleted(&key), T::LIST)),
        Tried::InUse(uses) => Ok(question(&visitor, &model, object, uses).ask_again()),
        Tried::Refused(error) => Err(error.into()),
    }
}

fn question<T: Edited>(visitor: &Visitor, model: &Model, object: &T, uses: Vec<InUse>) -> Confirm {
    let key = object.key();
    Confirm {
        frame: visitor.frame(T::SECTION, format!("Delete the {} {key}?", T::WORD)),
        effects: object.effects(model),
        uses,
        feels: T::SESSIONS_FEEL,
        choices: Vec::new(),
        action: format!("{}/delete", T::href(&key)),
        hidden: Vec::new(),
        verb: format!("Delete the {}", T::WORD),
        back: T::href(&key),
    }
}

fn find<'a, T: Edited>(model: &'a Model, key: &str) -> Result<&'a T, Refusal> {
    model.get::<T>(key).ok_or_else(|| Refusal::not_found(T::WORD))
}

fn put<T: Edited>(object: T, more: Vec<Edit>) -> Change {
    let first = Edit::Put(object.into_any());
    Change::of(std::iter::once(first).chain(more).collect())
}

fn refuse<T: Edited>(form: &mut Form, error: ChangeError) {
    if let ChangeError::Exists(_) = error {
        let fix = "use another name, or change the one that is there";
        form.complain(T::KEY_FIELD, "is there already", fix);
        return;
    }
    form.refuse(&Refusal::from(error), T::place);
}
