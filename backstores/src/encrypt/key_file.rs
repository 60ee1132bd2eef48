//! The file that holds a disk's key: how it is read, claimed, and replaced.
//!
//! It holds 64 bytes, or 128 hexadecimal digits with white space around them. One disk that is written has it for
//! itself (flock(2)): otherwise an erase of one disk would take the other's data too, and equal sectors of both would
//! look equal.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, FlockOperation, Gid, Uid};
use zeroize::Zeroizing;

use super::xts::{KEY_LEN, Key};
use crate::file::{parent, sync_directory};
use crate::{OpenError, holder};

/// A key file that is open and claimed.
#[derive(Debug)]
pub(super) struct KeyFile {
    /// With symbolic links resolved, so that a link is not replaced by a file.
    path: PathBuf,
    /// Holds the lock.
    file: File,
    form: Form,
    /// It can be overwritten and renamed over.
    replaceable: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Form {
    Hexadecimal,
    Raw,
}

impl KeyFile {
    /// Opens, claims and reads a key. Blocking.
    pub(super) fn open(path: &Path, read_only: bool) -> Result<(Self, Key), OpenError> {
        let refuse = |problem: String, fix: &str| OpenError {
            path: path.into(),
            problem,
            fix: fix.into(),
        };
        let system = |error: io::Error| {
            refuse(
                format!("the key cannot be read ({error})"),
                "make one with: head -c 64 /dev/urandom > FILE; chmod 600 FILE",
            )
        };
        let path_of_file = path.canonicalize().map_err(system)?;
        let (file, writable) = open(&path_of_file).map_err(system)?;
        if !file.metadata().map_err(system)?.is_file() {
            return Err(refuse(
                "is no regular file".into(),
                "name a file that holds the key",
            ));
        }
        let operation = if read_only {
            FlockOperation::NonBlockingLockShared
        } else {
            FlockOperation::NonBlockingLockExclusive
        };
        let lock = || Ok(rustix::fs::flock(&file, operation)?);
        holder::claim(&path_of_file, lock, || false).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => refuse(
                "is the key of another disk that is served".into(),
                "give each disk a key of its own",
            ),
            _ => system(error),
        })?;
        // One byte more than the longest form of any use, so that a longer file shows.
        let mut content = Zeroizing::new(Vec::with_capacity(CONTENT_MAX + 1));
        (&file)
            .take(CONTENT_MAX as u64 + 1)
            .read_to_end(&mut content)
            .map_err(system)?;
        let (form, key) = parse(&content).map_err(|problem| {
            refuse(
                problem.into(),
                "it has to hold 64 random bytes, or 128 hexadecimal digits",
            )
        })?;
        let in_directory = rustix::fs::access(parent(&path_of_file), Access::WRITE_OK).is_ok();
        let opened = Self {
            path: path_of_file,
            file,
            form,
            replaceable: writable && in_directory && !read_only,
        };
        Ok((opened, key))
    }

    /// Whether [`replace`](Self::replace) can be expected to work.
    pub(super) fn is_replaceable(&self) -> bool {
        self.replaceable
    }

    /// Puts a new random key in place of the old one. When this has returned `Ok`, the file holds the new key whatever
    /// happens, and the old one has been overwritten where it was; after an error the file holds one of them, whole.
    /// `adopt` gets the new key as soon as a restart would read it. Blocking.
    pub(super) fn replace(&mut self, adopt: impl FnOnce(Key)) -> io::Result<()> {
        let key = random_key();
        let mut temporary = self.path.clone().into_os_string();
        temporary.push(".new");
        let temporary = PathBuf::from(temporary);
        let renamed = self
            .write_new(&temporary, &key)
            .and_then(|file| std::fs::rename(&temporary, &self.path).map(|()| file));
        let new = match renamed {
            Ok(new) => new,
            Err(error) => {
                // It may not even be there; the first error says more.
                let _ = std::fs::remove_file(&temporary);
                return Err(error);
            }
        };
        let old = std::mem::replace(&mut self.file, new);
        adopt(key);
        sync_directory(parent(&self.path))?;
        // The old key lies in blocks that are free now: they are overwritten as far as the file system lets us.
        let len = usize::try_from(old.metadata()?.len()).unwrap_or(CONTENT_MAX);
        old.write_all_at(&vec![0; len.min(CONTENT_MAX)], 0)?;
        old.sync_all()
    }

    fn write_new(&self, path: &Path, key: &Key) -> io::Result<File> {
        let metadata = self.file.metadata()?;
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(path)?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        let (uid, gid) = (Uid::from_raw(metadata.uid()), Gid::from_raw(metadata.gid()));
        // Whoever may replace a file need not be allowed to give one away. Then the new one is ours.
        let _ = rustix::fs::fchown(&file, Some(uid), Some(gid));
        file.set_permissions(metadata.permissions())?;
        match self.form {
            Form::Raw => file.write_all(&key[..])?,
            Form::Hexadecimal => {
                let digits = key.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
                let digits = Zeroizing::new(digits + "\n");
                file.write_all(digits.as_bytes())?;
            }
        }
        file.sync_all()?;
        Ok(file)
    }
}

/// Opens for writing where that is allowed.
fn open(path: &Path) -> io::Result<(File, bool)> {
    let options = |write| {
        let mut options = OpenOptions::new();
        // A FIFO must not hold us.
        options
            .read(true)
            .write(write)
            .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
        options
    };
    match options(true).open(path) {
        Ok(file) => Ok((file, true)),
        Err(_) => options(false).open(path).map(|file| (file, false)),
    }
}

fn parse(content: &[u8]) -> Result<(Form, Key), &'static str> {
    let (form, key) = match <[u8; KEY_LEN]>::try_from(content) {
        Ok(key) => (Form::Raw, Key::new(key)),
        Err(_) => (Form::Hexadecimal, from_digits(content).ok_or("holds no key")?),
    };
    let (data, tweak) = key.split_at(KEY_LEN / 2);
    // XTS is no cipher any more when its two keys are one.
    if data == tweak {
        return Err("holds the same 32 bytes twice");
    }
    Ok((form, key))
}

fn from_digits(content: &[u8]) -> Option<Key> {
    let digits = content.trim_ascii();
    if digits.len() != 2 * KEY_LEN {
        return None;
    }
    let digit = |byte: u8| {
        char::from(byte)
            .to_digit(16)
            .and_then(|digit| u8::try_from(digit).ok())
    };
    let mut key = Key::new([0; KEY_LEN]);
    for (byte, pair) in key.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(key)
}

fn random_key() -> Key {
    let mut key = Key::new([0; KEY_LEN]);
    getrandom::fill(&mut key[..]).expect("the operating system has randomness once it is up");
    key
}

/// No key file is longer: all digits, and room for white space.
const CONTENT_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use tempfile::TempDir;

    use super::*;

    fn written(dir: &TempDir, content: &[u8]) -> PathBuf {
        let path = dir.path().join("key");
        std::fs::write(&path, content).unwrap();
        path
    }

    fn digits() -> Vec<u8> {
        (0..64)
            .flat_map(|byte: u8| format!("{byte:02X}").into_bytes())
            .collect()
    }

    #[test]
    fn raw_bytes_and_digits_are_the_same_key() {
        let raw: Vec<u8> = (0..64).collect();
        assert_eq!(parse(&raw).unwrap().1[..], raw[..]);
        for content in [
            digits(),
            [&digits()[..], b"\n"].concat(),
            [b" ", &digits()[..], b" \n"].concat(),
        ] {
            let (form, key) = parse(&content).unwrap();
            assert_eq!((form, &key[..]), (Form::Hexadecimal, &raw[..]));
        }
    }

    #[test]
    fn what_is_no_key_is_refused() {
        let mut wrong_digit = digits();
        wrong_digit[5] = b'g';
        for content in [
            vec![],
            vec![1; 63],
            vec![1; 65],
            digits()[1..].to_vec(),
            wrong_digit,
            vec![0; 300],
        ] {
            assert!(parse(&content).is_err(), "{} bytes", content.len());
        }
        assert_eq!(parse(&[7; 64]).err(), Some("holds the same 32 bytes twice"));
    }

    #[test]
    fn a_key_is_one_disks_or_many_readers() {
        let dir = TempDir::new().unwrap();
        let path = written(&dir, &digits());
        let writer = KeyFile::open(&path, false).unwrap();
        for read_only in [false, true] {
            let error = KeyFile::open(&path, read_only).unwrap_err();
            assert!(error.to_string().contains("key of another disk"), "{error}");
        }
        drop(writer);
        let _readers = [
            KeyFile::open(&path, true).unwrap(),
            KeyFile::open(&path, true).unwrap(),
        ];
    }

    #[test]
    fn a_replaced_key_is_new_in_the_same_form_and_stays_claimed() {
        for content in [digits(), (0..64).collect()] {
            let dir = TempDir::new().unwrap();
            let path = written(&dir, &content);
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
            let other_name = dir.path().join("copy");
            std::fs::hard_link(&path, &other_name).unwrap();
            let (mut file, old) = KeyFile::open(&path, false).unwrap();
            assert!(file.is_replaceable());
            let mut adopted = None;
            file.replace(|key| adopted = Some(key)).unwrap();
            let adopted = adopted.unwrap();
            assert_ne!(adopted, old);
            assert!(
                KeyFile::open(&path, false).is_err(),
                "the new file is claimed too"
            );
            let form = file.form;
            drop(file);
            let (again, key) = KeyFile::open(&path, false).unwrap();
            assert_eq!((again.form, &key), (form, &adopted));
            let mode = std::fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o640);
            assert!(!dir.path().join("key.new").exists());
            assert!(std::fs::read(&other_name).unwrap().iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn a_link_to_the_key_stays_a_link() {
        let dir = TempDir::new().unwrap();
        let path = written(&dir, &digits());
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let (mut file, _) = KeyFile::open(&link, false).unwrap();
        file.replace(drop).unwrap();
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_ne!(std::fs::read(&path).unwrap(), digits());
    }
}
