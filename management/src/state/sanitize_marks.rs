//! Marks of disks that are being sanitized: one small file a logical unit, there from before the first block is erased until
//! all are. What it says is whether EXIT FAILURE MODE may open the disk again, and unless it failed what is being done.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use target_core::scsi::{SanitizeMark, SanitizeWork};

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
            Ok(text) => match parse(&text) {
                Some(mark) => Ok(Some(mark)),
                None => Err(refused("it is damaged".to_owned())),
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
            Some(mark) => unit_file::replace(&path, &to_text(&mark)),
        }
    }

    fn path(&self, unit: &str) -> PathBuf {
        self.directory.join(unit)
    }
}

/// One line of words: AUSE of the operation; what it does, unless it failed; for an overwrite the number of passes, whether
/// they alternate, and the pattern in hexadecimal digits.
fn to_text(mark: &SanitizeMark) -> String {
    let first = if mark.unrestricted {
        UNRESTRICTED
    } else {
        RESTRICTED
    };
    let rest = match &mark.work {
        None => String::new(),
        Some(SanitizeWork::EraseBlocks) => format!(" {BLOCKS}"),
        Some(SanitizeWork::EraseKey) => format!(" {KEY}"),
        Some(SanitizeWork::Overwrite {
            pattern,
            passes,
            invert,
        }) => {
            let digits: String = pattern.iter().map(|byte| format!("{byte:02x}")).collect();
            let alternation = if *invert { INVERTED } else { PLAIN };
            format!(" {OVERWRITE} {passes} {alternation} {digits}")
        }
    };
    format!("{first}{rest}\n")
}

fn parse(text: &str) -> Option<SanitizeMark> {
    let mut words = text.strip_suffix('\n')?.split(' ');
    let unrestricted = match words.next()? {
        RESTRICTED => false,
        UNRESTRICTED => true,
        _ => return None,
    };
    let work = match words.next() {
        None => None,
        Some(BLOCKS) => Some(SanitizeWork::EraseBlocks),
        Some(KEY) => Some(SanitizeWork::EraseKey),
        Some(OVERWRITE) => Some(SanitizeWork::Overwrite {
            passes: words.next()?.parse().ok()?,
            invert: match words.next()? {
                INVERTED => true,
                PLAIN => false,
                _ => return None,
            },
            pattern: from_digits(words.next()?)?,
        }),
        Some(_) => return None,
    };
    words
        .next()
        .is_none()
        .then_some(SanitizeMark { unrestricted, work })
}

/// Some bytes from their hexadecimal digits.
fn from_digits(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    let bytes: Option<Vec<u8>> = pairs
        .map(|pair| match pair {
            [_, _] => u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok(),
            _ => None,
        })
        .collect();
    bytes.filter(|bytes| !bytes.is_empty())
}

const RESTRICTED: &str = "restricted";
const UNRESTRICTED: &str = "unrestricted";
const BLOCKS: &str = "block-erase";
const KEY: &str = "cryptographic-erase";
const OVERWRITE: &str = "overwrite";
const INVERTED: &str = "alternating";
const PLAIN: &str = "plain";

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
        let overwrite = SanitizeWork::Overwrite {
            pattern: vec![0x0f, 0xe0],
            passes: 31,
            invert: true,
        };
        for (unrestricted, work, text) in [
            (false, None, "restricted\n"),
            (
                true,
                Some(SanitizeWork::EraseBlocks),
                "unrestricted block-erase\n",
            ),
            (
                false,
                Some(SanitizeWork::EraseKey),
                "restricted cryptographic-erase\n",
            ),
            (
                true,
                Some(overwrite),
                "unrestricted overwrite 31 alternating 0fe0\n",
            ),
        ] {
            let mark = Some(SanitizeMark { unrestricted, work });
            marks.save("60aa", mark.clone()).unwrap();
            let file = directory.path().join("sanitizing/60aa");
            assert_eq!(fs::read_to_string(file).unwrap(), text);
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
        fs::create_dir(directory.path().join("sanitizing")).unwrap();
        for text in [
            "restr",
            "restricted",
            "restricted more\n",
            "restricted block-erase now\n",
            "restricted overwrite 1 plain \n",
            "restricted overwrite 1 plain 0\n",
            "restricted overwrite 1 plain 0g\n",
        ] {
            fs::write(directory.path().join("sanitizing/60aa"), text).unwrap();
            let message = marks.load("60aa").unwrap_err().to_string();
            assert!(message.contains("sanitizing/60aa: it is damaged"), "{message}");
        }
    }

    #[test]
    fn a_mark_that_cannot_be_written_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("sanitizing"), "").unwrap();
        let marks = SanitizeMarks::new(directory.path());
        let mark = Some(SanitizeMark {
            unrestricted: false,
            work: None,
        });
        assert!(marks.save("60aa", mark).is_err());
    }
}
