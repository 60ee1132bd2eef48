//! Asking before something is done that cannot be taken back or that sessions feel: what would happen, to whom, and the
//! same form once more with `force` in it.

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use management::access::Actor;
use management::control::{Change, ChangeError};
use management::live::InUse;

use super::form::Form;
use super::frame::{Frame, page, page_with};
use crate::Web;

/// A question with its consequences. Confirmed, its form is posted to `action` with `force=1` when sessions are shown.
#[derive(Template)]
#[template(path = "confirm.html")]
pub(crate) struct Confirm {
    /// Around it.
    pub(crate) frame: Frame,
    /// What will happen, a sentence each.
    pub(crate) effects: Vec<String>,
    /// What sessions lose.
    pub(crate) uses: Vec<InUse>,
    /// Whether it is something that sessions could feel at all.
    pub(crate) feels: bool,
    /// Alternatives to choose from; none when there is nothing to choose.
    pub(crate) choices: Vec<Choice>,
    /// Where the form goes.
    pub(crate) action: String,
    /// Fields that go with it.
    pub(crate) hidden: Vec<(String, String)>,
    /// On the button.
    pub(crate) verb: String,
    /// Where else to go.
    pub(crate) back: String,
}

/// One of several ways to do it.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    /// Name of the field.
    pub(crate) name: &'static str,
    /// Its value.
    pub(crate) value: &'static str,
    /// In a few words.
    pub(crate) label: String,
    /// What it means.
    pub(crate) hint: String,
    /// The one that is chosen at first.
    pub(crate) chosen: bool,
}

impl Confirm {
    /// The page, before anything was tried.
    pub(crate) fn ask(&self) -> Response {
        page(self)
    }

    /// The page, after the node refused because of sessions.
    pub(crate) fn ask_again(&self) -> Response {
        page_with(StatusCode::CONFLICT, self)
    }

    /// Whether something is taken from sessions.
    fn hurts(&self) -> bool {
        !self.uses.is_empty()
    }

    /// Whether it could be done all the same.
    fn forcible(&self) -> bool {
        self.uses.iter().all(|it| it.forcible)
    }

    /// Sessions that lose something, each once.
    fn session_count(&self) -> usize {
        let mut handles: Vec<u16> = self
            .uses
            .iter()
            .flat_map(|it| it.sessions.iter().map(|session| session.tsih))
            .collect();
        handles.sort_unstable();
        handles.dedup();
        handles.len()
    }
}

/// What came of a form's change.
pub(crate) enum Tried {
    /// It is done.
    Done,
    /// Sessions would lose something, and the form did not say that this is known.
    InUse(Vec<InUse>),
    /// It was refused.
    Refused(ChangeError),
}

/// Makes the change of a form; `force` is what the form says.
pub(crate) async fn change(web: &Web, actor: &Actor, form: &Form, mut change: Change) -> Tried {
    change.force = form.is_set("force");
    match web.control().change(actor, change).await {
        Ok(_) => Tried::Done,
        Err(ChangeError::InUse(uses)) => Tried::InUse(uses),
        Err(error) => Tried::Refused(error),
    }
}

#[cfg(test)]
mod tests {
    use management::live::UsingSession;

    use super::*;
    use crate::ui::frame::Theme;

    fn confirm(uses: Vec<InUse>) -> String {
        let confirm = Confirm {
            frame: Frame::outside("Delete it?", Theme::Auto),
            effects: vec!["It is deleted.".to_owned()],
            uses,
            feels: true,
            choices: Vec::new(),
            action: "/luns/a/0/delete".to_owned(),
            hidden: vec![("data".to_owned(), "keep".to_owned())],
            verb: "Delete".to_owned(),
            back: "/luns".to_owned(),
        };
        confirm.render().unwrap()
    }

    fn in_use(forcible: bool) -> InUse {
        let session = UsingSession {
            tsih: 7,
            initiator: "iqn.2026-11.org.example:<host>".to_owned(),
            peer: "192.0.2.1:50000".to_owned(),
            target: "iqn.2026-11.org.example:a".to_owned(),
        };
        InUse {
            path: "luns/iqn.2026-11.org.example:a/0".to_owned(),
            problem: "these sessions would lose the disk".to_owned(),
            fix: "log these initiators out first".to_owned(),
            forcible,
            sessions: vec![session],
        }
    }

    #[test]
    fn who_loses_something_is_named_and_the_form_then_says_that_it_is_known() {
        let text = confirm(vec![in_use(true)]);
        for part in [
            "1 session is using it",
            "iqn.2026-11.org.example:&#60;host&#62;",
            "192.0.2.1:50000",
            "name=\"force\" value=\"1\"",
            "Delete all the same",
            "name=\"data\" value=\"keep\"",
        ] {
            assert!(text.contains(part), "{part:?} is not in {text}");
        }
    }

    #[test]
    fn what_nobody_uses_is_confirmed_without_force() {
        let text = confirm(Vec::new());
        assert!(text.contains("No session uses it now") && !text.contains("name=\"force\""));
    }

    #[test]
    fn what_cannot_be_forced_has_no_button_for_it() {
        let text = confirm(vec![in_use(false)]);
        assert!(!text.contains("<button class=\"danger"), "{text}");
    }
}
