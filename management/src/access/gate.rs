//! The way in: finds out who asks. Sessions of browsers live in memory and end with the process; users and tokens are in
//! the state.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use subtle::ConstantTimeEq;
use tokio::sync::Semaphore;

use super::attempts::Attempts;
use super::{Actor, NewToken, Via, password, token};
use crate::control::{Change, ChangeError, Control, Edit, Precondition};
use crate::events::{Event, EventKind};
use crate::model::{Id, Kind, Role, SecretText, Token, User};

/// Finds out who asks.
#[derive(Debug)]
pub struct Gate {
    control: Arc<Control>,
    inner: Mutex<Inner>,
    /// Passwords that are hashed at once: each takes 19 MiB.
    hashing: Semaphore,
}

#[derive(Debug, Default)]
struct Inner {
    /// By the hash of the cookie.
    sessions: HashMap<String, CookieSession>,
    attempts: Attempts,
    /// The hash of the token that makes the first user.
    set_up: Option<String>,
}

/// A browser's session.
#[derive(Clone, Debug)]
pub struct CookieSession {
    /// Whose.
    pub user: Id,
    /// What a page has to send along with a change.
    pub csrf: String,
    began: Instant,
    used: Instant,
}

/// A session that has just begun.
#[derive(Clone, Debug)]
pub struct NewSession {
    /// The value of the cookie.
    pub cookie: String,
    /// What a page has to send along with a change.
    pub csrf: String,
    /// Whose it is.
    pub actor: Actor,
}

/// Why somebody did not get in, or a user or token was not made.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum GateError {
    /// The state said no.
    #[error(transparent)]
    Change(#[from] ChangeError),
    /// The last administrator is not to go.
    #[error("this is the last administrator: make another one first")]
    LastAdministrator,
    /// The password cannot be used.
    #[error("{0}")]
    Password(String),
    /// There are users already.
    #[error("this is set up already: log in, or have an administrator reset the password on the host")]
    SetUpAlready,
    /// Too many failures.
    #[error("too many failed tries: wait {} s", .0.as_secs() + 1)]
    TooManyTries(Duration),
    /// Wrong name or password, or wrong token.
    #[error("{0}")]
    Wrong(&'static str),
}

impl Gate {
    /// A gate in front of `control`.
    #[must_use]
    pub fn new(control: Arc<Control>) -> Arc<Self> {
        Arc::new(Self {
            control,
            inner: Mutex::default(),
            hashing: Semaphore::new(2),
        })
    }

    /// What is behind it.
    #[must_use]
    pub const fn control(&self) -> &Arc<Control> {
        &self.control
    }

    /// Whether nobody can log in yet.
    #[must_use]
    pub fn needs_set_up(&self) -> bool {
        self.control.model().users.is_empty()
    }

    /// Lets the holder of a token make the first user. The token; one is made when none is given.
    pub fn open_set_up(&self, given: Option<String>) -> String {
        let secret = given.unwrap_or_else(|| token::random(self.control.entropy()));
        self.inner().set_up = Some(token::hash(&secret));
        secret
    }

    /// Makes the first user, an administrator, and logs them in.
    ///
    /// # Errors
    /// There are users, the token is wrong, or the password cannot be used.
    pub async fn set_up(
        &self,
        peer: Option<IpAddr>,
        secret: &str,
        name: Id,
        new_password: String,
    ) -> Result<NewSession, GateError> {
        if !self.needs_set_up() {
            return Err(GateError::SetUpAlready);
        }
        let whom = [who(peer), "set-up".to_owned()];
        self.may_try(&whom)?;
        let fits = {
            let inner = self.inner();
            let hash = token::hash(secret);
            inner
                .set_up
                .as_ref()
                .is_some_and(|kept| kept.as_bytes().ct_eq(hash.as_bytes()).into())
        };
        if !fits {
            return Err(GateError::Wrong(
                "the set-up token is wrong: it is in the program's log, and new with each start",
            ));
        }
        let user = User {
            name: name.clone(),
            role: Role::Admin,
            password_hash: Some(self.hash(new_password).await?),
        };
        let change = Change {
            edits: vec![Edit::Put(user.into())],
            // Two who are set up at once: the second finds the first.
            preconditions: vec![Precondition::Absent(Kind::User, name.to_string())],
            ..Change::default()
        };
        if self.inner().set_up.take().is_none() {
            return Err(GateError::SetUpAlready);
        }
        self.inner().attempts.succeeded(&whom);
        self.control.change(&Actor::program(), change).await?;
        Ok(self.begin_session(name, Role::Admin))
    }

    /// Logs a user in.
    ///
    /// # Errors
    /// Wrong name or password (which of them is not told), or too many tries.
    pub async fn log_in(
        &self,
        peer: Option<IpAddr>,
        name: &str,
        given: String,
    ) -> Result<NewSession, GateError> {
        let whom = [
            who(peer),
            format!("user {}", name.chars().take(63).collect::<String>()),
        ];
        self.may_try(&whom)?;
        let user = self.control.model().get::<User>(name).cloned();
        let hash = user.as_ref().and_then(|user| user.password_hash.clone());
        let fits = self
            .compute(move || password::verify(&given, hash.as_ref()))
            .await;
        let Some(user) = user.filter(|_| fits) else {
            let text = format!("{} could not log in to the management from {}", whom[1], whom[0]);
            self.control
                .events()
                .record(Event::new(EventKind::UserRefused, text));
            return Err(GateError::Wrong("name or password is wrong"));
        };
        self.inner().attempts.succeeded(&whom);
        let session = self.begin_session(user.name, user.role);
        let text = format!("{} logged in to the management from {}", session.actor, whom[0]);
        self.control
            .events()
            .record(Event::new(EventKind::UserLoggedIn, text).by(&session.actor));
        Ok(session)
    }

    /// Ends a session.
    pub fn log_out(&self, cookie: &str) {
        self.inner().sessions.remove(&token::hash(cookie));
    }

    /// Whose session a cookie is of.
    #[must_use]
    pub fn by_cookie(&self, cookie: &str) -> Option<(Actor, CookieSession)> {
        let now = Instant::now();
        let session = {
            let mut inner = self.inner();
            inner.sessions.retain(|_, session| session.is_good(now));
            let session = inner.sessions.get_mut(&token::hash(cookie))?;
            session.used = now;
            session.clone()
        };
        // As the user is now: a role that was taken away is gone at once.
        let role = self.control.model().get::<User>(session.user.as_str())?.role;
        let actor = Actor {
            name: session.user.to_string(),
            via: Via::Session,
            role,
        };
        Some((actor, session))
    }

    /// Whose token this is.
    #[must_use]
    pub fn by_token(&self, given: &str) -> Option<Actor> {
        let hash = token::hash(given);
        let now = seconds_now();
        let model = self.control.model();
        let found = model.all::<Token>().find(|token| {
            let kept = token.hash.as_ref().map(SecretText::expose).unwrap_or_default();
            bool::from(kept.as_bytes().ct_eq(hash.as_bytes()))
        })?;
        if found.expires.is_some_and(|expires| expires <= now) {
            return None;
        }
        Some(Actor {
            name: found.id.to_string(),
            via: Via::Token,
            role: found.role,
        })
    }

    /// Who is at the other end of the Unix socket: root and the user that the program runs as may do everything.
    #[must_use]
    pub fn by_user_id(&self, uid: u32) -> Option<Actor> {
        let ours = rustix::process::geteuid().as_raw();
        (uid == 0 || uid == ours).then(|| Actor {
            name: uid.to_string(),
            via: Via::Socket,
            role: Role::Admin,
        })
    }

    /// Whether an actor that was let in would still be: what lasts long asks again.
    #[must_use]
    pub fn knows_still(&self, actor: &Actor) -> bool {
        let model = self.control.model();
        match actor.via {
            Via::Program | Via::Socket => true,
            Via::Session => {
                let now = Instant::now();
                let inner = self.inner();
                let mut sessions = inner.sessions.values();
                model.get::<User>(&actor.name).is_some()
                    && sessions.any(|session| session.user.as_str() == actor.name && session.is_good(now))
            }
            Via::Token => model
                .get::<Token>(&actor.name)
                .is_some_and(|token| token.expires.is_none_or(|expires| expires > seconds_now())),
        }
    }

    /// Makes a user, or changes role and password of one. Without a password the one there is stays.
    ///
    /// # Errors
    /// Nothing was changed.
    pub async fn put_user(
        &self,
        actor: &Actor,
        name: Id,
        role: Role,
        new_password: Option<String>,
        preconditions: Vec<Precondition>,
    ) -> Result<(), GateError> {
        let password_hash = match new_password {
            Some(new_password) => Some(self.hash(new_password).await?),
            None => None,
        };
        let known = self.control.model().get::<User>(name.as_str()).cloned();
        if known.is_none() && password_hash.is_none() {
            return Err(GateError::Password("a new user needs a password".to_owned()));
        }
        if role != Role::Admin {
            self.keep_an_administrator(&name)?;
        }
        let ends_sessions = password_hash.is_some();
        let user = User {
            name: name.clone(),
            role,
            password_hash,
        };
        let change = Change {
            edits: vec![Edit::Put(user.into())],
            preconditions,
            ..Change::default()
        };
        self.control.change(actor, change).await?;
        if ends_sessions {
            self.inner().sessions.retain(|_, session| session.user != name);
        }
        Ok(())
    }

    /// Takes a user away; their sessions end.
    ///
    /// # Errors
    /// Nothing was changed.
    pub async fn delete_user(&self, actor: &Actor, name: &Id) -> Result<(), GateError> {
        self.keep_an_administrator(name)?;
        let edits = vec![Edit::Delete(Kind::User, name.to_string())];
        self.control.change(actor, Change::of(edits)).await?;
        self.inner().sessions.retain(|_, session| session.user != *name);
        Ok(())
    }

    /// Makes a token. Nobody makes one that may do more than they may themselves.
    ///
    /// # Errors
    /// Nothing was changed.
    pub async fn new_token(
        &self,
        actor: &Actor,
        id: Id,
        role: Role,
        expires: Option<u64>,
    ) -> Result<NewToken, GateError> {
        let secret = format!("{}{}", token::PREFIX, token::random(self.control.entropy()));
        let made = Token {
            id: id.clone(),
            role: role.min(actor.role),
            created_by: actor.to_string(),
            created: seconds_now(),
            expires,
            hash: Some(SecretText::new(token::hash(&secret))),
        };
        let change = Change {
            edits: vec![Edit::Put(made.into())],
            preconditions: vec![Precondition::Absent(Kind::Token, id.to_string())],
            ..Change::default()
        };
        self.control.change(actor, change).await?;
        Ok(NewToken {
            id: id.to_string(),
            token: secret,
        })
    }

    fn keep_an_administrator(&self, name: &Id) -> Result<(), GateError> {
        let model = self.control.model();
        let mut administrators = model
            .all::<User>()
            .filter(|user| user.role == Role::Admin)
            .peekable();
        let is_one = model
            .get::<User>(name.as_str())
            .is_some_and(|user| user.role == Role::Admin);
        if is_one && administrators.all(|user| user.name == *name) {
            return Err(GateError::LastAdministrator);
        }
        Ok(())
    }

    fn begin_session(&self, user: Id, role: Role) -> NewSession {
        let entropy = self.control.entropy();
        let (cookie, csrf) = (token::random(entropy), token::random(entropy));
        let now = Instant::now();
        let actor = Actor {
            name: user.to_string(),
            via: Via::Session,
            role,
        };
        let session = CookieSession {
            user,
            csrf: csrf.clone(),
            began: now,
            used: now,
        };
        let mut inner = self.inner();
        inner.sessions.retain(|_, session| session.is_good(now));
        if inner.sessions.len() >= SESSIONS_MAX {
            let oldest = inner.sessions.iter().min_by_key(|(_, session)| session.used);
            if let Some(key) = oldest.map(|(key, _)| key.clone()) {
                inner.sessions.remove(&key);
            }
        }
        inner.sessions.insert(token::hash(&cookie), session);
        NewSession { cookie, csrf, actor }
    }

    /// A try counts as failed until it has succeeded: so tries that are made at once do not all come before the first
    /// failure.
    fn may_try(&self, whom: &[String]) -> Result<(), GateError> {
        let (mut inner, now) = (self.inner(), Instant::now());
        if let Some(wait) = inner.attempts.wait(whom, now) {
            return Err(GateError::TooManyTries(wait));
        }
        inner.attempts.failed(whom, now);
        Ok(())
    }

    async fn hash(&self, new_password: String) -> Result<SecretText, GateError> {
        self.compute(move || password::hash(&new_password))
            .await
            .map_err(GateError::Password)
    }

    async fn compute<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let _turn = self.hashing.acquire().await.expect("it is never closed");
        tokio::task::spawn_blocking(work)
            .await
            .expect("hashing does not panic")
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CookieSession {
    fn is_good(&self, now: Instant) -> bool {
        now.duration_since(self.began) < SESSION_LIFE && now.duration_since(self.used) < SESSION_IDLE
    }
}

/// Refused tries are also in the log with where they came from. Whoever has an IPv6 address has all of its /64.
fn who(peer: Option<IpAddr>) -> String {
    match peer.map(|peer| peer.to_canonical()) {
        None => "this host".to_owned(),
        Some(IpAddr::V4(address)) => format!("address {address}"),
        Some(IpAddr::V6(address)) => {
            let network = Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX));
            format!("network {network}/64")
        }
    }
}

fn seconds_now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}

const SESSIONS_MAX: usize = 1000;
const SESSION_LIFE: Duration = Duration::from_secs(12 * 3600);
const SESSION_IDLE: Duration = Duration::from_secs(3600);
