//! Asking once more before something goes that no session feels at once: users, tokens, long work, reservations of
//! hosts that are gone. What sessions feel is asked by `confirm.rs`.

use askama::Template;

use super::frame::Frame;

/// A question; confirmed, its form is posted to `action`.
#[derive(Template)]
#[template(path = "sure.html")]
pub(super) struct Sure {
    pub(super) frame: Frame,
    /// What will happen, a sentence each.
    pub(super) effects: Vec<String>,
    /// Where the form goes.
    pub(super) action: String,
    /// Fields that go with it.
    pub(super) hidden: Vec<(&'static str, &'static str)>,
    /// On the button.
    pub(super) verb: &'static str,
    /// Where else to go.
    pub(super) back: &'static str,
}
