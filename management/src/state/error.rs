//! Why a state directory cannot be used, or a change not saved.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use super::copies;

/// One line that names the directory, the problem and the fix.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("state directory {path}: {problem}; {fix}", path = .path.display())]
pub struct StateError {
    /// The directory.
    pub path: PathBuf,
    /// What is wrong.
    pub problem: String,
    /// What would help.
    pub fix: String,
}

impl StateError {
    /// A problem with a directory.
    pub fn new(path: &Path, problem: impl Display, fix: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            problem: problem.to_string(),
            fix: fix.into(),
        }
    }

    /// Neither the database nor the newest copy can be used: a person has to decide.
    pub(super) fn damaged(path: &Path, damage: &str, copy: &str) -> Self {
        let newest = copies::NEWEST;
        let fix = format!(
            "keep a copy of the directory; then either put the newest {newest}.N that is right in the place of {newest} \
             and start again, or start with another --state-dir"
        );
        Self::new(
            path,
            format!("its database is damaged ({damage}) and so is {newest} ({copy})"),
            fix,
        )
    }
}
