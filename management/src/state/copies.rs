//! Readable copies of the whole state beside the database: what it is restored from, by the program or by hand.
//!
//! A copy is a first line that says what it is, with the SHA-256 of the rest, and the rest: every object by kind and key.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::identity::InstallationId;
use crate::model::{AnyObject, Kind, Model};

/// The newest copy. The ones before it are `state.json.1` (newest) to `state.json.9`.
pub(super) const NEWEST: &str = "state.json";

/// A copy that was read.
#[derive(Debug)]
pub(super) struct Copy {
    pub(super) installation: InstallationId,
    pub(super) model: Model,
}

/// A copy that is written and not the newest yet.
#[derive(Debug)]
pub(super) struct Prepared<'a> {
    directory: &'a Path,
}

/// The first line.
#[derive(Debug, Deserialize, Serialize)]
struct Header {
    format: u32,
    generation: u64,
    sha256: String,
}

#[derive(Deserialize, Serialize)]
struct Body {
    installation: InstallationId,
    /// By kind and key.
    objects: BTreeMap<String, BTreeMap<String, Entry>>,
}

#[derive(Deserialize, Serialize)]
struct Entry {
    revision: u64,
    value: serde_json::Value,
}

impl Copy {
    pub(super) const fn generation(&self) -> u64 {
        self.model.generation
    }
}

/// Writes a copy beside the others, durably: when there is no space for it, that is told before anything is changed.
/// Readable by its owner alone from the first moment.
pub(super) fn prepare<'a>(
    directory: &'a Path,
    installation: InstallationId,
    model: &Model,
) -> io::Result<Prepared<'a>> {
    let body = body(installation, model);
    let header = Header {
        format: FORMAT,
        generation: model.generation,
        sha256: hex(&Sha256::digest(&body)),
    };
    let mut file = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(directory.join(TEMPORARY))?;
    serde_json::to_writer(&mut file, &header)?;
    file.write_all(b"\n")?;
    file.write_all(&body)?;
    file.sync_all()?;
    Ok(Prepared { directory })
}

impl Prepared<'_> {
    /// Makes it the newest.
    pub(super) fn publish(self) -> io::Result<()> {
        let directory = self.directory;
        for age in (1..KEPT).rev() {
            rename_if_there(&numbered(directory, age), &numbered(directory, age + 1))?;
        }
        // A link, so that there is a newest one at every moment.
        let (newest, first) = (directory.join(NEWEST), numbered(directory, 1));
        match fs::hard_link(&newest, &first) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        fs::rename(directory.join(TEMPORARY), newest)?;
        File::open(directory)?.sync_all()
    }
}

/// The newest copy; `Ok(None)` when there is none, and what is wrong with it when it cannot be used.
pub(super) fn newest(directory: &Path) -> Result<Option<Copy>, String> {
    let text = match fs::read(directory.join(NEWEST)) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    parse(&text).map(Some)
}

fn parse(text: &[u8]) -> Result<Copy, String> {
    let end = text
        .iter()
        .position(|byte| *byte == b'\n')
        .ok_or("it has no first line")?;
    let header: Header =
        serde_json::from_slice(&text[..end]).map_err(|error| format!("its first line: {error}"))?;
    if header.format != FORMAT {
        return Err(format!(
            "it has format {}, this program knows {FORMAT}",
            header.format
        ));
    }
    let body = &text[end + 1..];
    if hex(&Sha256::digest(body)) != header.sha256 {
        return Err("its checksum does not fit".to_owned());
    }
    let body: Body = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let mut model = Model {
        generation: header.generation,
        ..Model::default()
    };
    for (path, objects) in body.objects {
        let kind = Kind::from_path(&path).ok_or_else(|| format!("{path} is no kind of object"))?;
        for (key, entry) in objects {
            let object =
                AnyObject::parse(kind, entry.value).map_err(|error| format!("{path}/{key}: {error}"))?;
            object.put(&mut model, entry.revision);
        }
    }
    Ok(Copy {
        installation: body.installation,
        model,
    })
}

fn body(installation: InstallationId, model: &Model) -> Vec<u8> {
    let mut objects: BTreeMap<String, BTreeMap<String, Entry>> = BTreeMap::new();
    for (revision, object) in model.objects() {
        let entry = Entry {
            revision,
            value: object.to_state(),
        };
        let kind = object.kind().path().to_owned();
        objects.entry(kind).or_default().insert(object.key(), entry);
    }
    let body = Body {
        installation,
        objects,
    };
    let mut text = serde_json::to_vec_pretty(&body).expect("plain values have a JSON form");
    text.push(b'\n');
    text
}

fn numbered(directory: &Path, age: usize) -> PathBuf {
    directory.join(format!("{NEWEST}.{age}"))
}

fn rename_if_there(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

const TEMPORARY: &str = "state.json.new";
const KEPT: usize = 9;
const FORMAT: u32 = 2;
