//! Why the process does not start (or a client command fails): one line that names the culprit and the fix.

use std::path::PathBuf;

/// Start-up errors. `Display` is the whole line.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// The command line cannot be understood.
    #[error("{0}")]
    Usage(String),
    /// An option's value.
    #[error("{option} {value:?}: {problem}")]
    Option {
        option: &'static str,
        value: String,
        problem: String,
    },
    /// A store.
    #[error("--export: {0}")]
    Store(#[from] backstores::OpenError),
    /// A listening address.
    #[error(transparent)]
    Bind(#[from] tcp_transport::BindError),
    /// The state directory.
    #[error("state directory {path}: {problem}; {fix}", path = .path.display())]
    State {
        path: PathBuf,
        problem: String,
        fix: String,
    },
    /// The state directory.
    #[error(transparent)]
    Saved(#[from] management::state::StateError),
    /// The operating system refused something basic.
    #[error("{what}: {source}")]
    System {
        what: &'static str,
        source: std::io::Error,
    },
}

impl StartError {
    pub(crate) fn option(option: &'static str, value: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Option {
            option,
            value: value.into(),
            problem: problem.into(),
        }
    }

    pub(crate) fn state(
        path: impl Into<PathBuf>,
        problem: impl std::fmt::Display,
        fix: impl Into<String>,
    ) -> Self {
        Self::State {
            path: path.into(),
            problem: problem.to_string(),
            fix: fix.into(),
        }
    }
}
