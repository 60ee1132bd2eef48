//! A CHAP credential. Its secret goes in, and never comes out: the form of one that is there has an empty field, which
//! left empty keeps the secret.

use askama::Template;
use management::control::Edit;
use management::model::{Credential, Id, Model, Object};

use super::{Use, uses};
use crate::Web;
use crate::ui::form::Form;
use crate::ui::frame::{Frame, Section};
use crate::ui::object::Edited;
use crate::ui::visitor::Visitor;

#[derive(Template)]
#[template(path = "initiators/credential.html")]
struct EditPage {
    frame: Frame,
    form: Form,
    is_new: bool,
    action: String,
    uses: Vec<Use>,
}

impl Edited for Credential {
    const SECTION: Section = Section::Initiators;
    const WORD: &'static str = "credential";
    const KEY_FIELD: &'static str = "id";
    const NEW: &'static str = "/new/credential";
    const LIST: &'static str = "/initiators";
    const PATH: &'static str = "/credentials";

    fn form(&self, _model: &Model) -> Form {
        Form::of([("name", self.name.clone())])
    }

    /// Without a secret the model keeps the one there is.
    fn read(form: &mut Form, _model: &Model, old: Option<&Self>) -> Option<(Self, Vec<Edit>)> {
        let id = match old {
            Some(old) => Some(old.id.clone()),
            None => form.parse::<Id>("id"),
        };
        let name = form.parse::<String>("name");
        let secret = form.secret("secret");
        if old.is_none() && secret.is_none() {
            form.complain("secret", "is missing", "write one of 12 to 16 characters");
        }
        let credential = Self {
            id: id?,
            name: name?,
            secret,
        };
        Some((credential, Vec::new()))
    }

    fn place(path: &str) -> Option<&'static str> {
        let (_, field) = path.strip_prefix("credentials/")?.split_once('/')?;
        ["name", "secret"].into_iter().find(|it| *it == field)
    }

    fn page(web: &Web, visitor: &Visitor, form: Form, known: Option<&Self>) -> impl Template {
        let model = web.control().model();
        let key = known.map(Object::key);
        EditPage {
            frame: visitor.frame(
                Section::Initiators,
                key.as_deref().unwrap_or("New CHAP credential"),
            ),
            form,
            is_new: known.is_none(),
            action: Self::action(known),
            uses: known.map(|it| uses(&model, it)).unwrap_or_default(),
        }
    }

    fn made(key: &str) -> (String, String) {
        let text = format!("Credential {key} is kept. Choose it at a target or initiator.");
        (text, Self::LIST.to_owned())
    }

    fn saved(_key: &str) -> (String, String) {
        let text = "Saved. It holds for the next login.";
        (text.to_owned(), Self::LIST.to_owned())
    }

    fn deleted(key: &str) -> String {
        format!("Credential {key} is deleted.")
    }

    fn effects(&self, _model: &Model) -> Vec<String> {
        vec!["Nobody can log in with it any more. Its secret cannot be brought back.".to_owned()]
    }
}
