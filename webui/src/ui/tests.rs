//! The pages as a browser without scripts meets them: a small one that keeps cookies, follows redirects and posts the
//! fields of the form it sees.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Method, Request, StatusCode, header};
use management::access::{Actor, Gate};
use management::control::{Change, Control, Edit};
use management::exposition::Cores;
use management::live::{Accept, Defaults};
use management::model::{AnyObject, Kind, Role};
use management::state::State;
use target_core::control::Directory;
use target_core::iscsi::Node;
use tower::ServiceExt;

use crate::serve::{Peer, Scheme};
use crate::{Web, router};

mod activity;
mod entrance;
mod luns;
mod system;
mod targets;
mod traces;

/// A node with its pages.
pub(super) struct Site {
    directory: tempfile::TempDir,
    control: Arc<Control>,
    router: Router,
}

/// A browser.
pub(super) struct Browser {
    router: Router,
    cookies: BTreeMap<String, String>,
}

/// What came back.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) text: String,
}

impl Site {
    /// A node that nobody can log in to yet.
    pub(super) fn new() -> Self {
        Self::at(tempfile::tempdir().unwrap())
    }

    /// A node over a state directory.
    pub(super) fn at(directory: tempfile::TempDir) -> Self {
        Self::started(directory, Defaults::default())
    }

    /// A node over a state directory, with what the options of its start add.
    pub(super) fn started(directory: tempfile::TempDir, defaults: Defaults) -> Self {
        let control = start(directory.path(), defaults);
        let gate = Gate::new(Arc::clone(&control));
        gate.open_set_up(Some(TOKEN.to_owned()));
        let router = router(Web::new(gate, "0", Cores::new(Vec::new)));
        Self {
            directory,
            control,
            router,
        }
    }

    /// A node with a user `admin`, and a browser that they are logged in with.
    pub(super) async fn with_admin() -> (Self, Browser) {
        let site = Self::new();
        let browser = site.set_up().await;
        (site, browser)
    }

    /// Makes a user `admin`, and logs them in.
    pub(super) async fn set_up(&self) -> Browser {
        let mut browser = self.browser();
        browser.get("/set-up").await;
        let fields = [
            ("token", TOKEN),
            ("name", "admin"),
            ("password", PASSWORD),
            ("password_again", PASSWORD),
        ];
        browser.post("/set-up", &fields).await.leads_to("/");
        browser
    }

    pub(super) fn browser(&self) -> Browser {
        Browser {
            router: self.router.clone(),
            cookies: BTreeMap::new(),
        }
    }

    /// A browser of a user with another role.
    pub(super) async fn as_role(&self, role: Role) -> Browser {
        let name = match role {
            Role::Admin => "other-admin",
            Role::Operator => "operator",
            Role::Viewer => "viewer",
        };
        let gate = Gate::new(Arc::clone(&self.control));
        let id = name.parse().unwrap();
        gate.put_user(&Actor::program(), id, role, Some(PASSWORD.to_owned()), Vec::new())
            .await
            .unwrap();
        let mut browser = self.browser();
        browser.log_in(name).await;
        browser
    }

    /// Changes the configuration as the API would.
    pub(super) async fn put(&self, kind: Kind, value: serde_json::Value) {
        let edits = vec![Edit::Put(AnyObject::parse(kind, value).unwrap())];
        self.control
            .change(&Actor::program(), Change::of(edits))
            .await
            .unwrap();
    }

    /// Stops the node; its directory.
    pub(super) fn stopped(self) -> tempfile::TempDir {
        self.directory
    }

    pub(super) fn control(&self) -> &Arc<Control> {
        &self.control
    }

    pub(super) fn directory(&self) -> &Path {
        self.directory.path()
    }
}

impl Browser {
    pub(super) async fn log_in(&mut self, name: &str) {
        self.get("/login").await;
        self.post("/login", &[("name", name), ("password", PASSWORD)])
            .await
            .leads_to("/");
    }

    pub(super) async fn get(&mut self, path: &str) -> Answer {
        self.send(Method::GET, path, None).await
    }

    /// Posts a form with the proof of the page that was seen last.
    pub(super) async fn post(&mut self, path: &str, fields: &[(&str, &str)]) -> Answer {
        let proof = self.cookies.get("(proof)").cloned().unwrap_or_default();
        let mut all = vec![("csrf", proof.as_str())];
        all.extend(fields);
        self.post_bare(path, &all).await
    }

    /// Posts a form with these fields and nothing else.
    pub(super) async fn post_bare(&mut self, path: &str, fields: &[(&str, &str)]) -> Answer {
        let body = super::show::query(fields);
        self.send(Method::POST, path, Some(body)).await
    }

    async fn send(&mut self, method: Method, path: &str, form: Option<String>) -> Answer {
        let cookies = self.cookies.iter().filter(|(name, _)| *name != "(proof)");
        let cookies: Vec<String> = cookies.map(|(name, value)| format!("{name}={value}")).collect();
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "san.example.org:8080");
        if !cookies.is_empty() {
            request = request.header(header::COOKIE, cookies.join("; "));
        }
        if form.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        }
        let mut request = request.body(form.map_or_else(Body::empty, Body::from)).unwrap();
        request
            .extensions_mut()
            .insert(Peer::Address([192, 0, 2, 9].into()));
        request.extensions_mut().insert(Scheme::Http);
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let text = String::from_utf8(to_bytes(body, 1 << 24).await.unwrap().to_vec()).unwrap();
        for line in parts.headers.get_all(header::SET_COOKIE) {
            let pair = line.to_str().unwrap().split(';').next().unwrap();
            let (name, value) = pair.split_once('=').unwrap();
            self.cookies.insert(name.to_owned(), value.to_owned());
        }
        if let Some((_, rest)) = text.split_once("name=\"csrf\" value=\"") {
            self.cookies
                .insert("(proof)".to_owned(), rest.split('"').next().unwrap().to_owned());
        }
        Answer {
            status: parts.status,
            headers: parts.headers,
            text,
        }
    }
}

impl Answer {
    /// It sends the browser on to this place.
    #[track_caller]
    pub(super) fn leads_to(&self, place: &str) {
        assert_eq!(self.status, StatusCode::SEE_OTHER, "{}", self.text);
        assert_eq!(self.headers[header::LOCATION], place);
    }

    /// It is a page with this status and these texts in it.
    #[track_caller]
    pub(super) fn says(&self, status: u16, texts: &[&str]) {
        assert_eq!(self.status.as_u16(), status, "{}", self.text);
        for text in texts {
            assert!(self.text.contains(text), "{text:?} is not in {}", self.text);
        }
    }

    /// Nothing of these is in it.
    #[track_caller]
    pub(super) fn lacks(&self, texts: &[&str]) {
        for text in texts {
            assert!(!self.text.contains(text), "{text:?} is in {}", self.text);
        }
    }
}

/// An address of this host where nobody listens.
pub(super) fn free_address() -> String {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    free.local_addr().unwrap().to_string()
}

fn entropy(bytes: &mut [u8]) {
    getrandom::fill(bytes).unwrap();
}

fn start(directory: &Path, defaults: Defaults) -> Arc<Control> {
    let (state, model) = State::open(directory, entropy).unwrap();
    let node = Node::new(Directory::default(), entropy, Vec::new);
    let defaults = Defaults {
        base: directory.to_owned(),
        ..defaults
    };
    let accept = Accept::new(|listener| tokio::spawn(async move { drop(listener) }).abort_handle());
    Control::start(state, model, node, defaults, accept, entropy).unwrap()
}

/// The token of the set-up.
pub(super) const TOKEN: &str = "a-set-up-token-of-a-test";
/// The password of everybody.
pub(super) const PASSWORD: &str = "correct horse <battery> & staple";
