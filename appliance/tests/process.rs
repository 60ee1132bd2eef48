//! The process as an operator sees it: what it says, what it leaves behind, how it ends.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod initiator;
mod program;

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use initiator::Initiator;
use program::{bound, program};
use rustix::process::{Pid, Signal, kill_process};

/// Far above what a start or a stop without connections takes.
const PATIENCE: Duration = Duration::from_secs(20);

fn lunaport(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = bound(program());
    command
        .current_dir(directory)
        .args(arguments)
        .env_clear()
        .stdin(Stdio::null());
    command
}

/// A command that has to fail by itself: exit code 1 and one line on standard error, which is given back.
fn refused(directory: &Path, arguments: &[&str]) -> String {
    let Output {
        status,
        stdout,
        stderr,
    } = lunaport(directory, arguments).output().unwrap();
    let line = String::from_utf8(stderr).unwrap();
    assert_eq!(status.code(), Some(1), "{arguments:?}: {line}");
    assert_eq!(line.lines().count(), 1, "{arguments:?}: {line}");
    assert!(stdout.is_empty());
    line
}

fn entries(directory: &Path) -> Vec<String> {
    let names = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

/// A port that was free a moment ago.
fn free_portal() -> String {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .to_string()
}

/// A running `lunaport serve`; ended with the test.
struct Server {
    child: Child,
    lines: Receiver<String>,
}

impl Server {
    fn start(directory: &Path, arguments: &[&str]) -> Self {
        Self::of(lunaport(directory, &[&["serve"], arguments].concat()))
    }

    fn of(mut command: Command) -> Self {
        let mut child = command
            .stderr(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, lines) = mpsc::channel();
        for output in [
            Box::new(child.stderr.take().unwrap()) as Box<dyn std::io::Read + Send>,
            Box::new(child.stdout.take().unwrap()),
        ] {
            let sender = sender.clone();
            std::thread::spawn(move || {
                BufReader::new(output)
                    .lines()
                    .map_while(Result::ok)
                    .for_each(|line| drop(sender.send(line)));
            });
        }
        Self { child, lines }
    }

    /// Waits for a line that has this in it.
    fn says(&self, wanted: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        let mut seen = Vec::new();
        while let Ok(line) = self
            .lines
            .recv_timeout(deadline.saturating_duration_since(Instant::now()))
        {
            if line.contains(wanted) {
                return line;
            }
            seen.push(line);
        }
        panic!("{wanted:?} was not said, but {seen:#?}");
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    fn end(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A test that is killed ends with all its threads.
#[test]
fn a_program_that_is_tested_ends_with_the_thread_that_tests_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_owned();
    let started = std::thread::spawn(move || {
        let portal = free_portal();
        let server = Server::start(&path, &["--portal", &portal, "--export", "memory:1M"]);
        server.says("LUN 0");
        server
    });
    let mut server = started.join().unwrap();
    assert_eq!(server.end().signal(), Some(9));
}

#[test]
fn a_start_that_fails_names_the_culprit_and_the_fix_and_leaves_nothing() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let portal = free_portal();
    let cases: &[(&[&str], &[&str])] = &[
        (
            &["--portal", &taken, "--export", "memory:1M"],
            &[&taken, "another process listens"],
        ),
        (
            &["--portal", &portal, "--export", "file:missing.img"],
            &["missing.img", "size="],
        ),
        (
            &["--portal", &portal, "--export", "memory:1000"],
            &["1000", "multiple of the block size"],
        ),
        (
            &["--portal", &portal, "--export", "memory:1M,colour=red"],
            &["colour=red", "known are"],
        ),
        (
            &["--portal", &portal, "--export", "block:/dev/null"],
            &["/dev/null"],
        ),
        (
            &[
                "--portal",
                &portal,
                "--export",
                "memory:1M",
                "--set",
                "login-timeout=never",
            ],
            &["login-timeout=never"],
        ),
        (
            &[
                "--portal",
                &portal,
                "--export",
                "memory:1M",
                "--set",
                "Colour=red",
            ],
            &["Colour=red", "login-timeout"],
        ),
        (
            &[
                "--portal",
                &portal,
                "--export",
                "memory:1M",
                "--target-name",
                "disk",
            ],
            &["\"disk\"", "iqn."],
        ),
        (
            &[
                "--portal",
                &portal,
                "--export",
                "memory:1M",
                "--chap",
                "host:none",
            ],
            &["none", "put the secret there"],
        ),
        (
            &[
                "--portal",
                &portal,
                "--export",
                "file:new.img,size=1M",
                "--export",
                "file:missing.img",
            ],
            &["missing.img"],
        ),
        (&["--portal", &portal], &["nothing is saved there", "--export"]),
        (&["--portl", &portal], &["'--portl'", "'--portal'", "--help"]),
        (&["--portal", "nonsense"], &["'nonsense'", "--portal", "address"]),
    ];
    for (arguments, parts) in cases {
        let directory = tempfile::tempdir().unwrap();
        let line = refused(directory.path(), &[&["serve"], *arguments].concat());
        for part in *parts {
            assert!(line.contains(part), "{part:?} is missing in: {line}");
        }
        assert!(
            entries(directory.path()).is_empty(),
            "{arguments:?} left {:?}",
            entries(directory.path())
        );
    }
}

#[test]
fn a_file_that_is_served_is_refused_to_a_second_process_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let first = Server::start(
        directory.path(),
        &[
            "--portal",
            &free_portal(),
            "--state-dir",
            "one",
            "--export",
            "file:a.img,size=1M",
        ],
    );
    first.says("LUN 0: file a.img");
    let second = [
        "serve",
        "--portal",
        &free_portal(),
        "--state-dir",
        "two",
        "--export",
        "file:a.img",
    ];
    assert!(refused(directory.path(), &second).contains("a.img"));
    let twice = [
        "serve",
        "--portal",
        &free_portal(),
        "--export",
        "file:b.img,size=1M",
        "--export",
        "file:b.img",
    ];
    assert!(refused(directory.path(), &twice).contains("b.img"));
}

#[test]
fn an_iso_file_is_served_as_a_disc_if_it_can_be_one() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("a.iso"), vec![1; 40 * 2048]).unwrap();
    fs::write(directory.path().join("odd.iso"), vec![1; 2048 + 512]).unwrap();
    let server = Server::start(
        directory.path(),
        &["--portal", &free_portal(), "--export", "cdrom:a.iso"],
    );
    let line = server.says("LUN 0: CD-ROM image a.iso");
    assert!(
        line.contains("2048-byte blocks") && line.contains("read-only"),
        "{line}"
    );
    let odd = ["serve", "--portal", &free_portal(), "--export", "cdrom:odd.iso"];
    let line = refused(directory.path(), &odd);
    assert!(
        line.contains("no multiple of the block size 2048; make it 4096 bytes"),
        "{line}"
    );
}

#[test]
fn it_stops_cleanly_on_either_signal_and_answers_health_until_then() {
    for signal in [Signal::TERM, Signal::INT] {
        let directory = tempfile::tempdir().unwrap();
        let portal = free_portal();
        let mut server = Server::start(directory.path(), &["--portal", &portal, "--export", "memory:1M"]);
        server.says(&format!("every initiator that reaches {portal} may log in"));
        server.says("LUN 0: memory, 1 MiB");
        let health = lunaport(directory.path(), &["health", "--portal", &portal])
            .output()
            .unwrap();
        assert!(health.status.success());
        assert!(
            String::from_utf8(health.stdout)
                .unwrap()
                .contains("iqn.2026-11.org.lunaport:disks")
        );
        server.signal(signal);
        assert_eq!(server.end().code(), Some(0));
        let health = lunaport(directory.path(), &["health", "--portal", &portal])
            .output()
            .unwrap();
        assert_eq!(health.status.code(), Some(1), "nobody is there to answer");
    }
}

/// The address is one for documentation, so no device of any host has it.
#[test]
fn an_iser_portal_that_cannot_be_served_is_told_in_one_line_and_tcp_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let portal = free_portal();
    let options = [
        "--portal",
        &portal,
        "--portal",
        "iser:192.0.2.1:3260",
        "--export",
        "memory:1M",
    ];
    let server = Server::start(directory.path(), &options);
    let line = server.says("iSER");
    assert!(
        line.contains("TCP is not affected") || line.contains("iSER portal 192.0.2.1:3260: "),
        "{line}"
    );
    let health = lunaport(directory.path(), &["health", "--portal", &portal])
        .output()
        .unwrap();
    assert!(health.status.success());
}

#[test]
fn options_come_from_the_environment_too() {
    let directory = tempfile::tempdir().unwrap();
    let portal = free_portal();
    let mut command = lunaport(directory.path(), &["serve"]);
    command
        .env("LUNAPORT_PORTAL", &portal)
        .env("LUNAPORT_EXPORT", "memory:1M; null:2M")
        .env("LUNAPORT_STATE_DIR", "s");
    let server = Server::of(command);
    server.says("LUN 0: memory, 1 MiB");
    server.says("LUN 1: null (keeps nothing), 2 MiB");
    assert_eq!(entries(directory.path()), ["s"]);
}

#[test]
fn the_quick_start_makes_its_disk_once_and_prints_what_to_paste() {
    let directory = tempfile::tempdir().unwrap();
    let portal = free_portal();
    let start = || {
        let mut command = lunaport(directory.path(), &[]);
        command.env("LUNAPORT_PORTAL", &portal);
        Server::of(command)
    };
    let mut first = start();
    first.says(&format!("iscsiadm -m discovery -t sendtargets -p {portal}"));
    first.signal(Signal::TERM);
    assert_eq!(first.end().code(), Some(0));
    let state = fs::read_to_string(directory.path().join("lunaport-data/state.json")).unwrap();
    fs::write(directory.path().join("lunaport-data/disk0.img"), vec![7; 1 << 20]).unwrap();
    fs::File::options()
        .write(true)
        .open(directory.path().join("lunaport-data/disk0.img"))
        .unwrap()
        .set_len(1 << 30)
        .unwrap();

    let second = start();
    second.says("iscsi-ls -s");
    let again = fs::read_to_string(directory.path().join("lunaport-data/state.json")).unwrap();
    assert_eq!(again, state, "identities are made once");
    let disk = fs::File::open(directory.path().join("lunaport-data/disk0.img")).unwrap();
    let mut byte = [0];
    std::os::unix::fs::FileExt::read_exact_at(&disk, &mut byte, 4096).unwrap();
    assert_eq!(byte, [7], "what was on the disk is still there");
}

#[test]
fn completions_are_for_this_program() {
    let directory = tempfile::tempdir().unwrap();
    let Output { status, stdout, .. } = lunaport(directory.path(), &["completions", "bash"])
        .output()
        .unwrap();
    assert!(status.success());
    assert!(String::from_utf8(stdout).unwrap().contains("_lunaport()"));
}

/// The target that `--export` makes.
const TARGET: &str = "iqn.2026-11.org.lunaport:disks";
const GOOD: u8 = 0x00;
const CHECK_CONDITION: u8 = 0x02;
const RESERVATION_CONFLICT: u8 = 0x18;

/// PERSISTENT RESERVE OUT with the basic parameter list: its status.
/// A session whose unit attention has been heard.
fn log_in(portal: &str, target: &str, isid: u8) -> Initiator {
    let mut initiator = Initiator::log_in(portal, target, isid);
    let first = initiator.command(&[0; 6], 0, &[]);
    assert_eq!(first.sense(), (0x6, 0x29, 0x00), "a new nexus has one");
    initiator
}

fn prout(initiator: &mut Initiator, action: u8, kind: u8, keys: (u64, u64), aptpl: bool) -> u8 {
    let mut list = [keys.0.to_be_bytes(), keys.1.to_be_bytes()].concat();
    list.extend([0, 0, 0, 0, u8::from(aptpl), 0, 0, 0]);
    let cdb = [0x5f, action, kind, 0, 0, 0, 0, 0, 24, 0];
    initiator.command(&cdb, 0, &list).status
}

fn write(initiator: &mut Initiator) -> u8 {
    let cdb = [0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0];
    initiator.command(&cdb, 0, &[7; 512]).status
}

#[test]
fn reservations_with_aptpl_survive_kill_9_and_others_do_not() {
    let directory = tempfile::tempdir().unwrap();
    let portal = free_portal();
    let start = || {
        let arguments = ["--portal", &portal, "--export", "memory:1M", "--state-dir", "s"];
        let server = Server::start(directory.path(), &arguments);
        server.says("LUN 0: memory, 1 MiB");
        server
    };
    let mut server = start();
    let mut one = log_in(&portal, TARGET, 1);
    assert_eq!(prout(&mut one, 0, 0, (0, 0x11), true), GOOD);
    assert_eq!(prout(&mut one, 1, 5, (0x11, 0), false), GOOD);
    server.signal(Signal::KILL);
    server.end();

    let mut server = start();
    let mut two = log_in(&portal, TARGET, 2);
    assert_eq!(write(&mut two), RESERVATION_CONFLICT, "from the first command on");
    let mut one = log_in(&portal, TARGET, 1);
    assert_eq!(write(&mut one), GOOD);
    let keys = one.command(&[0x5e, 0, 0, 0, 0, 0, 0, 0, 64, 0], 64, &[]).data;
    assert_eq!(keys, [0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0x11]);
    // The last APTPL decides: now all of it ends with the power.
    assert_eq!(prout(&mut one, 0, 0, (0x11, 0x12), false), GOOD);
    server.signal(Signal::KILL);
    server.end();

    let _server = start();
    let mut two = log_in(&portal, TARGET, 2);
    assert_eq!(write(&mut two), GOOD);
}

#[test]
fn a_reservation_that_cannot_be_kept_fails_and_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let portal = free_portal();
    let arguments = ["--portal", &portal, "--export", "memory:1M", "--state-dir", "s"];
    let server = Server::start(directory.path(), &arguments);
    server.says("LUN 0: memory, 1 MiB");
    // A file stands where the directory has to be.
    fs::write(directory.path().join("s/reservations"), "").unwrap();
    let mut one = log_in(&portal, TARGET, 1);
    assert_eq!(prout(&mut one, 0, 0, (0, 0x11), true), CHECK_CONDITION);
    server.says("could not be kept");
    let keys = one.command(&[0x5e, 0, 0, 0, 0, 0, 0, 0, 64, 0], 64, &[]);
    assert_eq!((keys.status, keys.data), (GOOD, vec![0; 8]));
    fs::remove_file(directory.path().join("s/reservations")).unwrap();
    assert_eq!(prout(&mut one, 0, 0, (0, 0x11), true), GOOD);
}

#[test]
fn reservations_that_cannot_be_read_keep_it_from_starting() {
    let directory = tempfile::tempdir().unwrap();
    let portal = free_portal();
    let arguments = ["--portal", &portal, "--export", "memory:1M", "--state-dir", "s"];
    let mut server = Server::start(directory.path(), &arguments);
    server.says("LUN 0: memory, 1 MiB");
    let mut one = log_in(&portal, TARGET, 1);
    assert_eq!(prout(&mut one, 0, 0, (0, 0x11), true), GOOD);
    drop(one);
    server.signal(Signal::TERM);
    assert_eq!(server.end().code(), Some(0));
    let files = entries(&directory.path().join("s/reservations"));
    let [file] = &files[..] else {
        panic!("{files:?}");
    };
    fs::write(directory.path().join("s/reservations").join(file), "{").unwrap();
    let line = refused(directory.path(), &[&["serve"], &arguments[..]].concat());
    assert!(line.contains(file) && line.contains("damaged"), "{line}");
}
