//! Marks of disks that are being sanitized: one small file a logical unit, there from before the first block is erased until
//! all are. What it says is whether EXIT FAILURE MODE may open the disk again.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use target_core::scsi::SanitizeMark;

use super::{StateError, unit_file};

/// The marks of a state directory. Whoever has them has the database of that directory open.
#[derive(Clone, Debug)]
pub struct SanitizeMarks {
    directory: PathBuf,
}

impl SanitizeMarks {
    /// Those of `state_directory`. Nothing is made before there is something to mark.
    #[must_use]
    pub fn new(state_directory: &Path) -> Self {
        Self {
            directory: state_directory.join("sanitizing"),
        }
    }

    /// Where they are.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The mark of a unit. One that cannot be read keeps the program from starting: without it a disk that was erased in
    /// part might be served.
    ///
    /// # Errors
    /// The file cannot be read, or means nothing.
    pub fn load(&self, unit: &str) -> Result<Option<SanitizeMark>, StateError> {
        let path = self.path(unit);
        let refused = |problem: String| {
            let fix = "remove it to serve a disk whose sanitizing did not end as if nothing had been";
            StateError::new(&path, problem, fix)
        };
        match fs::read_to_string(&path) {
            Ok(text) => match text.trim_end() {
                RESTRICTED => Ok(Some(SanitizeMark { unrestricted: false })),
                UNRESTRICTED => Ok(Some(SanitizeMark { unrestricted: true })),
                _ => Err(refused("it is damaged".to_owned())),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(refused(error.to_string())),
        }
    }

    /// Sets the mark of a unit or takes it away. Durable when this returns.
    ///
    /// # Errors
    /// It may not be set.
    pub fn save(&self, unit: &str, mark: Option<SanitizeMark>) -> io::Result<()> {
        let path = self.path(unit);
        match mark {
            None => unit_file::remove(&path),
            Some(SanitizeMark { unrestricted }) => {
                let word = if unrestricted { UNRESTRICTED } else { RESTRICTED };
                unit_file::replace(&path, &format!("{word}\n"))
            }
        }
    }

    fn path(&self, unit: &str) -> PathBuf {
        self.directory.join(unit)
    }
}

/// What the file says: AUSE of the operation.
const RESTRICTED: &str = "restricted";
const UNRESTRICTED: &str = "unrestricted";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_found_until_it_is_taken_away() {
        let directory = tempfile::tempdir().unwrap();
        let marks = SanitizeMarks::new(directory.path());
        assert_eq!(marks.load("60aa").unwrap(), None);
        marks.save("60aa", None).unwrap();
        assert!(!directory.path().join("sanitizing").exists());
        for unrestricted in [false, true] {
            let mark = Some(SanitizeMark { unrestricted });
            marks.save("60aa", mark).unwrap();
            assert_eq!(marks.load("60aa").unwrap(), mark);
            assert_eq!(marks.load("60ab").unwrap(), None, "another unit");
        }
        marks.save("60aa", None).unwrap();
        assert_eq!(marks.load("60aa").unwrap(), None);
    }

    #[test]
    fn a_damaged_mark_is_named_and_nothing_starts_with_it() {
        let directory = tempfile::tempdir().unwrap();
        let marks = SanitizeMarks::new(directory.path());
        marks
            .save("60aa", Some(SanitizeMark { unrestricted: false }))
            .unwrap();
        fs::write(directory.path().join("sanitizing/60aa"), "restr").unwrap();
        let message = marks.load("60aa").unwrap_err().to_string();
        assert!(message.contains("sanitizing/60aa: it is damaged"), "{message}");
    }

    #[test]
    fn a_mark_that_cannot_be_written_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("sanitizing"), "").unwrap();
        let marks = SanitizeMarks::new(directory.path());
        let mark = Some(SanitizeMark { unrestricted: false });
        assert!(marks.save("60aa", mark).is_err());
    }
}
