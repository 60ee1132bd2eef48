//! Conversations of real initiators: each header decodes, encodes to the same bytes, and says what it is known to say.
//! `tests/captures/README.md` tells the format of the files and how they were made.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use iscsi_proto::pdu::{Request, Response};
use iscsi_proto::{BHS_LEN, Frame, text};

/// One PDU of a capture.
struct Captured {
    sender: String,
    bhs: [u8; BHS_LEN],
    data: Vec<u8>,
}

#[test]
fn captured_headers_survive_decoding_and_say_what_they_said() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/captures");
    let mut files: Vec<PathBuf> = fs::read_dir(&directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "hex"));
    files.sort();
    assert!(
        files.len() >= 3,
        "captures of three initiators at least belong here: {files:?}"
    );
    for file in files {
        let said = describe(&fs::read_to_string(&file).unwrap());
        let known = file.with_extension("txt");
        if std::env::var_os("BLESS").is_some() {
            fs::write(&known, &said).unwrap();
        }
        assert_eq!(said, fs::read_to_string(&known).unwrap(), "{}", file.display());
    }
}

/// One line a PDU; panics when a header does not come out of the codec as it went in.
fn describe(capture: &str) -> String {
    let mut out = String::new();
    for captured in capture.split("\n\n").filter_map(parse) {
        let Captured { sender, bhs, data } = captured;
        let (said, mut encoded) = if sender.starts_with("initiator") {
            let pdu = Request::decode(&bhs).unwrap();
            (format!("{pdu:?}"), pdu.encode())
        } else {
            let pdu = Response::decode(&bhs).unwrap();
            (format!("{pdu:?}"), pdu.encode())
        };
        Frame::of(&bhs).stamp(&mut encoded);
        assert_eq!(encoded, bhs, "{sender}: {said}");
        assert_eq!(Frame::of(&bhs).data_len, data.len(), "{sender}: {said}");
        writeln!(out, "{sender}: {said}").unwrap();
        if matches!(bhs[0] & 0x3f, 0x03 | 0x04 | 0x23 | 0x24) && !data.is_empty() {
            for pair in text::parse_pairs(&data).unwrap() {
                writeln!(out, "    {}={}", pair.key, pair.value).unwrap();
            }
        }
    }
    out
}

fn parse(block: &str) -> Option<Captured> {
    let mut lines = block.lines().filter(|line| !line.starts_with('#'));
    let sender = lines.next()?.to_owned();
    let (mut bhs, mut data) = (Vec::new(), Vec::new());
    for line in lines {
        let (label, bytes) = line.split_once(' ').unwrap();
        match label {
            "bhs" => bhs.extend(parse_bytes(bytes)),
            "data" => data.extend(parse_bytes(bytes)),
            _ => panic!("{line}"),
        }
    }
    Some(Captured {
        sender,
        bhs: bhs.try_into().unwrap(),
        data,
    })
}

fn parse_bytes(text: &str) -> Vec<u8> {
    let byte = |digits: &str| u8::from_str_radix(digits, 16).unwrap();
    if let Some((value, count)) = text.split_once('*') {
        return vec![byte(value); count.parse().unwrap()];
    }
    let digits: String = text.split(' ').collect();
    (0..digits.len())
        .step_by(2)
        .map(|at| byte(&digits[at..at + 2]))
        .collect()
}
