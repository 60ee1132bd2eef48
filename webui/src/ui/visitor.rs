//! Who looks at a page: somebody with a browser's session. Whoever has none is sent to log in.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Uri, header};
use management::access::{Actor, CookieSession};
use management::model::Role;

use super::frame::{Frame, Section, Theme};
use super::notice;
use crate::who::{self, cookie};
use crate::{Refusal, Web};

/// Somebody in front of a page.
#[derive(Clone, Debug)]
pub(crate) struct Visitor {
    /// Who.
    pub(crate) actor: Actor,
    csrf: String,
    theme: Theme,
    notice: Option<String>,
    /// Path and query of the request.
    here: String,
    /// What the request was sent to: name or address of this host as the browser knows it.
    host: String,
}

/// A visitor who may change what is configured.
#[derive(Clone, Debug)]
pub(crate) struct OperatorVisitor(pub(crate) Visitor);

/// A visitor who may do everything.
#[derive(Clone, Debug)]
pub(crate) struct AdminVisitor(pub(crate) Visitor);

impl Visitor {
    /// Whose session the cookie of a request is of.
    pub(super) fn of(web: &Web, headers: &HeaderMap, uri: &Uri) -> Option<Self> {
        let (actor, session) = web.gate().by_cookie(cookie(headers)?)?;
        Some(Self::new(actor, &session, headers, uri))
    }

    fn new(actor: Actor, session: &CookieSession, headers: &HeaderMap, uri: &Uri) -> Self {
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        Self {
            actor,
            csrf: session.csrf.clone(),
            theme: Theme::of(headers),
            notice: notice::given(headers),
            here: uri
                .path_and_query()
                .map_or_else(|| "/".to_owned(), ToString::to_string),
            host: host.map(host_alone).unwrap_or_default(),
        }
    }

    /// What surrounds a page for this visitor.
    pub(crate) fn frame(&self, section: Section, title: impl Into<String>) -> Frame {
        Frame {
            title: title.into(),
            section,
            user: self.actor.name.clone(),
            role: match self.actor.role {
                Role::Admin => "administrator",
                Role::Operator => "operator",
                Role::Viewer => "viewer",
            },
            csrf: self.csrf.clone(),
            theme: self.theme,
            notice: self.notice.clone(),
            here: self.here.clone(),
            may_change: self.actor.role >= Role::Operator,
            may_all: self.actor.role >= Role::Admin,
        }
    }

    /// Name or address by which the browser knows this host, without a port; an IPv6 address has its brackets.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }
}

impl From<OperatorVisitor> for Visitor {
    fn from(OperatorVisitor(visitor): OperatorVisitor) -> Self {
        visitor
    }
}

impl FromRequestParts<Web> for Visitor {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, web: &Web) -> Result<Self, Refusal> {
        let nobody = || Refusal::unknown_actor(web.gate().needs_set_up());
        let actor = parts.extensions.get::<Actor>().ok_or_else(nobody)?.clone();
        let session = parts.extensions.get::<CookieSession>().ok_or_else(nobody)?;
        Ok(Self::new(actor, session, &parts.headers, &parts.uri))
    }
}

impl FromRequestParts<Web> for OperatorVisitor {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, web: &Web) -> Result<Self, Refusal> {
        let visitor = Visitor::from_request_parts(parts, web).await?;
        who::Operator::from_request_parts(parts, web).await?;
        Ok(Self(visitor))
    }
}

impl FromRequestParts<Web> for AdminVisitor {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, web: &Web) -> Result<Self, Refusal> {
        let visitor = Visitor::from_request_parts(parts, web).await?;
        who::Admin::from_request_parts(parts, web).await?;
        Ok(Self(visitor))
    }
}

fn host_alone(host: &str) -> String {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') && port.bytes().all(|byte| byte.is_ascii_digit()) => {
            name.to_owned()
        }
        _ => host.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_loses_its_port_and_keeps_its_brackets() {
        assert_eq!(host_alone("san.example.org:8443"), "san.example.org");
        assert_eq!(host_alone("[2001:db8::1]:80"), "[2001:db8::1]");
        assert_eq!(host_alone("[2001:db8::1]"), "[2001:db8::1]");
        assert_eq!(host_alone("192.0.2.1"), "192.0.2.1");
    }
}
