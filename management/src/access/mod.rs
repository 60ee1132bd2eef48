//! Who may manage, and how they show who they are: passwords, session cookies, API tokens, and the user id at the other
//! end of a Unix socket. What they may then do is a matter of their role.

mod attempts;
mod gate;
mod password;
mod token;

use std::fmt;

pub use gate::{CookieSession, Gate, GateError, NewSession};
pub use password::{PASSWORD_MAX, PASSWORD_MIN};
pub use token::NewToken;

use crate::model::Role;

/// Who asks for something.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Actor {
    /// User name, token id or user id.
    pub name: String,
    /// How they showed it.
    pub via: Via,
    /// What they may do.
    pub role: Role,
}

/// How an actor showed who it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Via {
    /// The program itself.
    Program,
    /// A browser's session.
    Session,
    /// The Unix socket, by user id.
    Socket,
    /// An API token.
    Token,
}

impl Actor {
    /// The program itself, at its start.
    #[must_use]
    pub fn program() -> Self {
        Self {
            name: "lunaport".to_owned(),
            via: Via::Program,
            role: Role::Admin,
        }
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.via {
            Via::Program => f.write_str(&self.name),
            Via::Session => write!(f, "user {}", self.name),
            Via::Socket => write!(f, "uid {} on this host", self.name),
            Via::Token => write!(f, "token {}", self.name),
        }
    }
}
