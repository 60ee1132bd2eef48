//! The rules of this repository, as tests: what ARCHITECTURE.md promises and CONTRIBUTING.md asks for, as far as a
//! program can see it. Each rule is a function over text, and each has a sample that it must refuse: a rule that cannot
//! fail protects nothing.

use std::fs;
use std::path::{Path, PathBuf};

/// A file of the repository: its path from the root, and its text.
struct Source {
    path: String,
    text: String,
}

/// A rule: what is wrong with a file, one message each.
type Rule = fn(&Source) -> Vec<String>;

#[test]
fn every_crate_but_those_two_forbids_unsafe_code() {
    check(
        forbids_unsafe,
        "iscsi-proto/src/lib.rs",
        "//! What.\npub mod pdu;\n",
    );
}

#[test]
fn unsafe_stands_in_backstores_and_verbs_alone() {
    check(no_unsafe, "target-core/src/a.rs", "fn f() { unsafe { g() } }");
}

#[test]
fn backstores_knows_no_protocol() {
    check(
        stores_know_no_protocol,
        "backstores/src/a.rs",
        "/// Answers an iSCSI request.",
    );
}

#[test]
fn the_core_names_no_transport() {
    check(
        core_names_no_transport,
        "target-core/src/a.rs",
        "fn f(rdma: bool) {}",
    );
}

#[test]
fn the_core_reads_the_clock_at_five_places_alone() {
    check(
        core_reads_no_clock,
        "target-core/src/a.rs",
        "fn f() { Instant::now(); }",
    );
}

#[test]
fn the_core_opens_nothing() {
    check(core_opens_nothing, "target-core/src/a.rs", "use std::fs::File;");
}

#[test]
fn long_files_say_why() {
    check(length_is_explained, "appliance/src/a.rs", &"\n".repeat(801));
}

#[test]
fn every_rust_file_begins_with_what_it_is() {
    check(begins_with_what_it_is, "appliance/src/a.rs", "use std::fs;\n");
}

#[test]
fn nothing_is_left_for_later() {
    let sample = format!("// {}: do it\n", marks()[0]);
    check(nothing_left_for_later, "appliance/src/a.rs", &sample);
}

#[test]
fn nothing_unwraps_outside_tests() {
    check(no_unwrap, "appliance/src/a.rs", "fn f() { g().unwrap(); }");
}

#[test]
fn verbs_know_nothing_of_what_they_carry() {
    check(
        verbs_know_no_protocol,
        "iser-transport/src/verbs/device.rs",
        "//! For iSCSI.",
    );
}

#[test]
fn what_a_lint_is_spared_has_its_reason() {
    check(
        spared_with_reason,
        "appliance/src/a.rs",
        "#[allow(dead_code)]\nfn f() {}",
    );
}

#[test]
fn no_type_is_called_after_what_every_type_does() {
    check(
        no_empty_names,
        "appliance/src/a.rs",
        "pub(crate) struct SessionManager;",
    );
}

#[test]
fn documents_name_files_that_exist() {
    check(
        named_files_exist,
        "ARCHITECTURE.md",
        "See `target-core/src/nowhere.rs`.",
    );
    check(named_files_exist, "ARCHITECTURE.md", "See `nowhere.rs`.");
    check(named_files_exist, "README.md", "See [that](docs/nowhere.md).");
}

#[test]
fn no_file_holds_the_paths_of_a_machine() {
    let sample = format!("See {}/me/disk.img", homes()[0]);
    check(no_machine_paths, "README.md", &sample);
}

#[test]
fn every_crate_takes_the_lints_of_the_workspace() {
    check(
        takes_workspace_lints,
        "appliance/Cargo.toml",
        "[package]\nname = \"appliance\"\n",
    );
}

#[test]
fn crates_depend_downwards_alone() {
    check(
        depends_downwards,
        "backstores/Cargo.toml",
        "[dependencies]\niscsi-proto.workspace = true\n",
    );
}

#[test]
fn the_core_has_no_more_of_tokio_than_it_may() {
    check(
        core_tokio_features,
        "target-core/Cargo.toml",
        "[dependencies]\ntokio = { workspace = true, features = [\"macros\", \"net\"] }\n[dev-dependencies]\n",
    );
}

#[test]
fn the_rules_see_the_whole_repository() {
    let paths: Vec<_> = sources().into_iter().map(|source| source.path).collect();
    for path in [
        "Cargo.toml",
        "README.md",
        "check",
        "backstores/src/pool.rs",
        "tests/tests/tidy.rs",
    ] {
        assert!(paths.iter().any(|seen| seen == path), "{path} is not seen");
    }
}

/// Holds the rule against every file, and against a sample that breaks it.
#[track_caller]
fn check(rule: Rule, sample_path: &str, sample: &str) {
    let sample = Source {
        path: sample_path.into(),
        text: sample.into(),
    };
    assert!(!rule(&sample).is_empty(), "the rule does not notice its sample");
    let mut problems = Vec::new();
    for source in sources() {
        problems.extend(
            rule(&source)
                .into_iter()
                .map(|problem| format!("{}: {problem}", source.path)),
        );
    }
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

fn forbids_unsafe(source: &Source) -> Vec<String> {
    let roots = [
        "appliance/src/main.rs",
        "iscsi-proto/src/lib.rs",
        "management/src/lib.rs",
        "target-core/src/lib.rs",
        "tcp-transport/src/lib.rs",
        "tests/src/lib.rs",
        "webui/src/lib.rs",
    ];
    // Its verbs are the exception, and say so.
    let denies = source.path == "iser-transport/src/lib.rs";
    let wanted = if denies {
        "#![deny(unsafe_code)]"
    } else {
        "#![forbid(unsafe_code)]"
    };
    let forbids = source.text.lines().any(|line| line == wanted);
    complain(
        (denies || roots.contains(&source.path.as_str())) && !forbids,
        "does not forbid unsafe code",
    )
}

fn no_unsafe(source: &Source) -> Vec<String> {
    let may = [
        "backstores/",
        "iser-transport/src/verbs/",
        "iser-transport/tests/verbs",
    ];
    let exempt = may.iter().any(|place| source.path.starts_with(place));
    if !source.is_rust() || exempt || source.is_this_file() {
        return Vec::new();
    }
    lines_where(&source.text, |line| has_word(without_comment(line), "unsafe"))
}

fn stores_know_no_protocol(source: &Source) -> Vec<String> {
    if !source.path.starts_with("backstores/src/") {
        return Vec::new();
    }
    lines_where(&source.text, |line| {
        let lower = line.to_lowercase();
        let says_so = line.starts_with("//! Invariants:");
        !says_so && ["scsi", "nvme"].iter().any(|word| lower.contains(word))
    })
}

fn verbs_know_no_protocol(source: &Source) -> Vec<String> {
    if !source.path.starts_with("iser-transport/src/verbs/") {
        return Vec::new();
    }
    lines_where(&source.text, |line| {
        let lower = line.to_lowercase();
        lower.contains("iscsi") || has_word(&lower, "iser") || lower.contains("target_core")
    })
}

fn core_names_no_transport(source: &Source) -> Vec<String> {
    if !source.is_core() {
        return Vec::new();
    }
    lines_where(production(&source.text), |line| {
        let code = without_comment(line).to_lowercase();
        code.contains("rdma") || code.contains("ibv_") || has_word(&code, "stag") || has_word(&code, "iser")
    })
}

fn core_reads_no_clock(source: &Source) -> Vec<String> {
    let may = [
        "target-core/src/scsi/copy/tokens.rs",
        "target-core/src/scsi/task_set.rs",
        "target-core/src/scsi/testing.rs",
        "target-core/src/scsi/timestamp.rs",
        "target-core/src/serve.rs",
        "target-core/src/trace/recording.rs",
    ];
    if !source.is_core() || may.contains(&source.path.as_str()) {
        return Vec::new();
    }
    let reads = |line: &str| line.contains("Instant::now") || line.contains("SystemTime");
    lines_where(production(&source.text), |line| reads(without_comment(line)))
}

fn core_opens_nothing(source: &Source) -> Vec<String> {
    if !source.is_core() {
        return Vec::new();
    }
    let forbidden = [
        "std::fs",
        "std::process",
        "std::env",
        "TcpStream",
        "TcpListener",
        "UdpSocket",
        "tokio::net",
    ];
    lines_where(production(&source.text), |line| {
        forbidden.iter().any(|word| without_comment(line).contains(word))
    })
}

fn length_is_explained(source: &Source) -> Vec<String> {
    let lines = source.text.lines().count();
    let top: String = source.text.lines().take(20).collect();
    let is_code = source.is_rust() || !source.path.contains('.') || source.path.ends_with(".py");
    complain(
        is_code && lines > LINES_MAX && !top.contains("Long because"),
        &format!("{lines} lines, and nothing at the top that begins with `Long because`"),
    )
}

fn begins_with_what_it_is(source: &Source) -> Vec<String> {
    let begins = source.text.starts_with("//! ");
    complain(
        source.is_rust() && !begins,
        "does not begin with a `//!` paragraph",
    )
}

fn nothing_left_for_later(source: &Source) -> Vec<String> {
    lines_where(&source.text, |line| {
        marks().iter().any(|mark| has_word(line, mark))
    })
}

fn no_unwrap(source: &Source) -> Vec<String> {
    if !source.is_rust() || source.is_test() {
        return Vec::new();
    }
    let forbidden = [".unwrap()", "todo!", "unimplemented!", "dbg!"];
    lines_where(production(&source.text), |line| {
        forbidden.iter().any(|word| without_comment(line).contains(word))
    })
}

fn spared_with_reason(source: &Source) -> Vec<String> {
    if !source.is_rust() || source.is_this_file() {
        return Vec::new();
    }
    let mut problems = Vec::new();
    for opening in ["allow(", "expect("] {
        for hash in ["#[", "#!["] {
            let attribute = format!("{hash}{opening}");
            for (at, _) in source.text.match_indices(&attribute) {
                let whole = source.text[at..].split(")]").next().unwrap_or_default();
                problems.extend(complain(
                    !whole.contains("reason ="),
                    &format!("{whole})] has no reason"),
                ));
            }
        }
    }
    problems
}

fn no_empty_names(source: &Source) -> Vec<String> {
    if !source.is_rust() {
        return Vec::new();
    }
    let is_type = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        words.windows(2).any(|pair| {
            let name: String = pair[1]
                .chars()
                .take_while(|letter| letter.is_alphanumeric())
                .collect();
            ["struct", "enum", "trait", "type"].contains(&pair[0])
                && ["Manager", "Handler", "Helper", "Helpers", "Util", "Utils"]
                    .iter()
                    .any(|empty| name.ends_with(empty))
        })
    };
    lines_where(&source.text, |line| {
        !line.trim_start().starts_with("//") && !source.is_this_file() && is_type(line)
    })
}

fn named_files_exist(source: &Source) -> Vec<String> {
    let is_document = source.path.ends_with(".md")
        && (source.path == "tests/kernel/README.md" || !source.path.contains('/'));
    if !is_document {
        return Vec::new();
    }
    let folder = Path::new(&source.path).parent().unwrap_or_else(|| Path::new(""));
    let mut problems = Vec::new();
    for (at, _) in source.text.match_indices("](") {
        let target = source.text[at + 2..].split(')').next().unwrap_or_default();
        let file = target.split('#').next().unwrap_or_default();
        let is_local = !file.is_empty() && !file.contains("://");
        problems.extend(complain(
            is_local && !root().join(folder).join(file).exists(),
            &format!("links to {file}, which is not there"),
        ));
    }
    if source.path == "ARCHITECTURE.md" || source.path == "CONTRIBUTING.md" {
        for name in source.text.split('`').skip(1).step_by(2) {
            problems.extend(complain(
                !is_there(name),
                &format!("names {name}, which is not there"),
            ));
        }
    }
    problems
}

/// Whether a name in backquotes is no file's, or that of one that exists: with slashes from the root, without anywhere.
fn is_there(name: &str) -> bool {
    let looks_like_a_path = !name.contains([' ', '=', '(', '<', ':', '|'])
        && (name.ends_with(".rs")
            || name.ends_with(".md")
            || name.ends_with('/')
            || name.matches('/').count() > 1);
    if !looks_like_a_path || name.starts_with('/') {
        return true;
    }
    if name.contains('/') {
        return root().join(name).exists();
    }
    files()
        .iter()
        .any(|file| file.file_name().is_some_and(|file| file == name))
}

fn no_machine_paths(source: &Source) -> Vec<String> {
    let root = root();
    let deep = root.components().count() > 2;
    let here = root.to_string_lossy().into_owned();
    lines_where(&source.text, |line| {
        homes().iter().any(|home| line.contains(&format!("{home}/"))) || (deep && line.contains(&here))
    })
}

fn takes_workspace_lints(source: &Source) -> Vec<String> {
    let is_member = source.path.ends_with("/Cargo.toml") && !source.path.starts_with("fuzz/");
    complain(
        is_member && !source.text.contains("[lints]\nworkspace = true\n"),
        "does not take the workspace's lints",
    )
}

fn depends_downwards(source: &Source) -> Vec<String> {
    let allowed: &[&str] = match source.path.as_str() {
        "backstores/Cargo.toml" | "iscsi-proto/Cargo.toml" => &[],
        "target-core/Cargo.toml" => &["backstores", "iscsi-proto"],
        "iser-transport/Cargo.toml" | "tcp-transport/Cargo.toml" => {
            &["backstores", "iscsi-proto", "target-core"]
        }
        "management/Cargo.toml" => &["backstores", "iscsi-proto", "target-core", "tcp-transport"],
        // What its tests start is a node.
        "webui/Cargo.toml" => &["management", "target-core"],
        _ => return Vec::new(),
    };
    let ours = [
        "appliance",
        "backstores",
        "iscsi-proto",
        "iser-transport",
        "management",
        "target-core",
        "tcp-transport",
        "tests",
        "webui",
    ];
    lines_where(&source.text, |line| {
        let name = line.split(['.', ' ', '=']).next().unwrap_or_default();
        line.contains('=') && ours.contains(&name) && !allowed.contains(&name)
    })
}

fn core_tokio_features(source: &Source) -> Vec<String> {
    if source.path != "target-core/Cargo.toml" {
        return Vec::new();
    }
    let ordinary = source.text.split("[dev-dependencies]").next().unwrap_or_default();
    let wanted = "tokio = { workspace = true, features = [\"macros\", \"rt\", \"sync\", \"time\"] }";
    complain(
        !ordinary.lines().any(|line| line == wanted),
        "tokio's features are not macros, rt, sync, time",
    )
}

impl Source {
    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    fn is_core(&self) -> bool {
        self.path.starts_with("target-core/src/") && self.is_rust() && !self.is_test()
    }

    /// Code that runs in tests alone.
    fn is_test(&self) -> bool {
        let own = ["tests/", "fuzz/"].iter().any(|root| self.path.starts_with(root));
        own || self.path.contains("/tests/")
            || self.path.ends_with("/tests.rs")
            || self.path.ends_with("/testing.rs")
    }

    /// This file has the words that it forbids in its samples.
    fn is_this_file(&self) -> bool {
        self.path == "tests/tests/tidy.rs"
    }
}

/// The part of a file before its tests.
fn production(text: &str) -> &str {
    let opens_module = |after: &str| {
        let first = after.lines().next().unwrap_or_default();
        has_word(first, "mod") && first.ends_with('{')
    };
    let tests = text
        .match_indices("#[cfg(test)]\n")
        .find(|(at, mark)| opens_module(&text[at + mark.len()..]));
    tests.map_or(text, |(at, _)| &text[..at])
}

fn without_comment(line: &str) -> &str {
    line.split("//").next().unwrap_or(line)
}

fn has_word(text: &str, word: &str) -> bool {
    let part_of_a_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    text.match_indices(word).any(|(at, _)| {
        !text[..at].ends_with(part_of_a_word) && !text[at + word.len()..].starts_with(part_of_a_word)
    })
}

fn lines_where(text: &str, is_wrong: impl Fn(&str) -> bool) -> Vec<String> {
    text.lines()
        .enumerate()
        .filter(|(_, line)| is_wrong(line))
        .map(|(number, line)| format!("line {}: {}", number + 1, line.trim()))
        .collect()
}

fn complain(is_wrong: bool, problem: &str) -> Vec<String> {
    if is_wrong {
        vec![problem.into()]
    } else {
        Vec::new()
    }
}

/// Every text file.
fn sources() -> Vec<Source> {
    let root = root();
    let source = |path: PathBuf| {
        let text = fs::read_to_string(&path).ok()?;
        let path = path.strip_prefix(&root).expect("below the root");
        Some(Source {
            path: path.to_str().expect("our names are ASCII").into(),
            text,
        })
    };
    files().into_iter().filter_map(source).collect()
}

fn files() -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder of the repository") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("entries have names").to_string_lossy();
            if path.is_symlink() || NOT_OURS.contains(&name.as_ref()) {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else {
                files.push(path);
            }
        }
    }
    files
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the crate lies in the repository")
        .into()
}

/// Words that mark unfinished work, put together here so that this file does not hold them.
fn marks() -> [String; 3] {
    [["TO", "DO"], ["FIX", "ME"], ["XX", "X"]].map(|halves| halves.concat())
}

/// Where people's own files are.
fn homes() -> [String; 3] {
    ["home", "root", "Users"].map(|name| format!("/{name}"))
}

/// What lies in a checkout without being part of it.
const NOT_OURS: [&str; 7] = [
    ".git",
    "__pycache__",
    "artifacts",
    "corpus",
    "lunaport-data",
    "target",
    "Cargo.lock",
];
const LINES_MAX: usize = 800;
