//! Disks of the running program as an initiator sees them over its life: they grow, and keep what was saved.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod initiator;
mod program;

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, ChildStderr, Stdio};
use std::time::{Duration, Instant};

use initiator::Initiator;
use program::{bound, program};
use rustix::process::{Pid, Signal, kill_process};

const TARGET: &str = "iqn.2026-11.org.lunaport:disks";

/// A running `lunaport serve`; killed with the test.
struct Server {
    child: Child,
    lines: BufReader<ChildStderr>,
    portal: String,
}

impl Server {
    /// Serves; returns when it listens.
    fn start(directory: &Path, arguments: &[&str]) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let portal = free.local_addr().unwrap().to_string();
        drop(free);
        let mut child = bound(program())
            .current_dir(directory)
            .args(["serve", "--portal", &portal])
            .args(arguments)
            .env_clear()
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap());
        let mut server = Self { child, lines, portal };
        server.says("LUN 0");
        server
    }

    /// Reads on to a line that has this in it. A program that ends or is silent for good fails the test.
    fn says(&mut self, wanted: &str) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert_ne!(
                self.lines.read_line(&mut line).unwrap(),
                0,
                "{wanted:?} was not said"
            );
            if line.contains(wanted) {
                return line;
            }
        }
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    fn log_in(&self, isid: u8) -> Initiator {
        let mut initiator = Initiator::log_in(&self.portal, TARGET, isid);
        while initiator.command(&[0; 6], 0, &[]).status != 0 {}
        initiator
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn last_lba(initiator: &mut Initiator) -> u32 {
    let end = initiator.command(&[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], 8, &[]);
    u32::from_be_bytes(end.data[..4].try_into().unwrap())
}

/// TEST UNIT READY until something is to be told.
fn next_attention(initiator: &mut Initiator, patience: Duration) -> (u8, u8, u8) {
    let deadline = Instant::now() + patience;
    loop {
        let end = initiator.command(&[0; 6], 0, &[]);
        if end.status != 0 {
            return end.sense();
        }
        assert!(Instant::now() < deadline, "nothing was told");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn resize(path: &Path, size: u64) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(size).unwrap();
}

#[test]
fn a_file_that_was_grown_is_served_larger_by_itself_and_on_sighup() {
    let directory = tempfile::tempdir().unwrap();
    let disk = directory.path().join("disk.img");
    let export = ["--export", "file:disk.img,size=1M"];
    let mut server = Server::start(directory.path(), &export);
    let mut initiators = [server.log_in(1), server.log_in(2)];
    assert_eq!(last_lba(&mut initiators[0]), 2047);

    resize(&disk, 2 << 20);
    server.signal(Signal::HUP);
    server.says("was grown to 2 MiB");
    for initiator in &mut initiators {
        assert_eq!(
            next_attention(initiator, Duration::from_secs(20)),
            (0x6, 0x2a, 0x09)
        );
        assert_eq!(initiator.command(&[0; 6], 0, &[]).status, 0, "told once");
        assert_eq!(last_lba(initiator), 4095);
    }
    // Nobody says anything: it is noticed within ten seconds.
    resize(&disk, 3 << 20);
    for initiator in &mut initiators {
        assert_eq!(
            next_attention(initiator, Duration::from_secs(10)),
            (0x6, 0x2a, 0x09)
        );
        assert_eq!(last_lba(initiator), 6143);
    }
    resize(&disk, 1 << 20);
    server.signal(Signal::HUP);
    let line = server.says("was cut to 1 MiB");
    assert!(line.contains("disk.img") && line.contains("3 MiB"), "{line}");
    assert_eq!(last_lba(&mut initiators[0]), 6143);
    let read = initiators[0].command(&[0x28, 0, 0, 0, 0x10, 0, 0, 0, 1, 0], 512, &[]);
    assert_eq!(read.sense(), (0x3, 0x11, 0x00));

    // The next start takes the file as it is by then.
    drop(server);
    resize(&disk, 4 << 20);
    let server = Server::start(directory.path(), &export);
    assert_eq!(last_lba(&mut server.log_in(1)), 8191);
}

#[test]
fn a_write_cache_that_was_switched_off_for_good_is_off_after_the_program_was_killed() {
    let directory = tempfile::tempdir().unwrap();
    let export = ["--export", "file:disk.img,size=1M"];
    let caching = |initiator: &mut Initiator| {
        let page = initiator.command(&[0x1a, 0x08, 0x08, 0, 0xff, 0], 255, &[]).data;
        (page[4], page[6])
    };
    let server = Server::start(directory.path(), &export);
    let mut initiator = server.log_in(1);
    assert_eq!(caching(&mut initiator), (0x88, 0x04));
    let mut list = [0; 24];
    (list[4], list[5]) = (0x08, 0x12);
    let select = initiator.command(&[0x15, 0x11, 0, 0, 24, 0], 0, &list);
    assert_eq!(select.status, 0);
    // SIGKILL, at once.
    drop(server);
    let server = Server::start(directory.path(), &export);
    assert_eq!(caching(&mut server.log_in(1)), (0x88, 0x00));
}

#[test]
fn portals_in_groups_are_paths_with_states() {
    let directory = tempfile::tempdir().unwrap();
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let second = free.local_addr().unwrap().to_string();
    drop(free);
    let portal = format!("{second},group=7,state=non-optimized");
    let arguments = [
        "--portal",
        &portal,
        "--export",
        "memory:1M,vendor=ACME,product=Fast disk,revision=7.1",
    ];
    let server = Server::start(directory.path(), &arguments);
    let report = [0xa3, 0x0a, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0];
    let mut initiator = server.log_in(1);
    let groups = initiator.command(&report, 512, &[]).data;
    assert_eq!((groups[4], groups[6..8].to_vec()), (0x00, vec![0, 1]));
    assert_eq!((groups[16], groups[18..20].to_vec()), (0x01, vec![0, 7]));
    let inquiry = initiator.command(&[0x12, 0, 0, 0, 96, 0], 96, &[]).data;
    assert_eq!(&inquiry[8..36], b"ACME    Fast disk       7.1 ");
    let mut other = Initiator::log_in(&second, TARGET, 1);
    let page = other.command(&[0x12, 1, 0x83, 2, 0, 0], 512, &[]).data;
    let port = [0x51, 0x94, 0, 4, 0, 0, 0, 7];
    assert!(page.windows(8).any(|window| window == port));
}
