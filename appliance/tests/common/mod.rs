//! What tests of the running program share: the program, an HTTP client, and an initiator that logs in and stays.
#![allow(dead_code, reason = "each test program uses some of it")]

pub(crate) mod http;
pub(crate) mod initiator;
#[path = "../program/mod.rs"]
pub(crate) mod program;

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use http::Client;
use program::{bound, program};
use serde_json::Value;

/// Far above what anything here takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A running `lunaport serve --admin` in a directory of its own; ended with the test.
pub(crate) struct Server {
    child: Child,
    pub(crate) directory: PathBuf,
    pub(crate) portal: SocketAddr,
    pub(crate) admin: SocketAddr,
    lines: Receiver<String>,
    pub(crate) said: Vec<String>,
}

impl Server {
    /// Starts it over a state directory, and waits until it is managed.
    pub(crate) fn start(directory: &Path) -> Self {
        Self::start_with(directory, free_address(), None, &[])
    }

    /// The same with more options.
    pub(crate) fn start_with_options(directory: &Path, options: &[&str]) -> Self {
        Self::start_with(directory, free_address(), None, options)
    }

    /// The same with a limit of open files.
    pub(crate) fn start_limited(directory: &Path, open_files: u64) -> Self {
        Self::start_with(directory, free_address(), Some(open_files), &[])
    }

    /// The same with another address of the administration.
    pub(crate) fn start_at(directory: &Path, admin: &str) -> Self {
        Self::start_with(directory, admin.parse().unwrap(), None, &[])
    }

    /// Whoever else takes ports on this machine may be quicker: then others are tried.
    fn start_with(directory: &Path, admin: SocketAddr, open_files: Option<u64>, options: &[&str]) -> Self {
        for _ in 0..5 {
            if let Some(server) = Self::try_start(directory, admin, open_files, options) {
                return server;
            }
        }
        panic!("other processes take every port");
    }

    fn try_start(
        directory: &Path,
        admin: SocketAddr,
        open_files: Option<u64>,
        options: &[&str],
    ) -> Option<Self> {
        let portal = free_address();
        let program = program();
        let mut command = match open_files {
            None => bound(&program),
            Some(limit) => {
                let mut shell = bound("/bin/sh");
                shell.args([
                    "-c",
                    &format!("ulimit -n {limit} && exec \"$0\" \"$@\""),
                    &program,
                ]);
                shell
            }
        };
        command
            .current_dir(directory)
            .env_clear()
            .args(["serve", "--cores", "1", "--state-dir"])
            .arg(directory)
            .args(["--portal", &portal.to_string(), "--admin", &admin.to_string()])
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (sender, lines) = mpsc::channel();
        let stderr = child.stderr.take().unwrap();
        std::thread::spawn(move || {
            BufReader::new(stderr)
                .lines()
                .map_while(Result::ok)
                .for_each(|line| drop(sender.send(line)));
        });
        let mut server = Self {
            child,
            directory: directory.to_owned(),
            portal,
            admin,
            lines,
            said: Vec::new(),
        };
        let first = server.says_one_of(&["management at", "another process listens there"]);
        first.contains("management at").then_some(server)
    }

    /// Waits for a line that has this in it.
    pub(crate) fn says(&mut self, wanted: &str) -> String {
        self.says_one_of(&[wanted])
    }

    fn says_one_of(&mut self, wanted: &[&str]) -> String {
        let deadline = Instant::now() + PATIENCE;
        while let Ok(line) = self
            .lines
            .recv_timeout(deadline.saturating_duration_since(Instant::now()))
        {
            self.said.push(line.clone());
            if wanted.iter().any(|wanted| line.contains(wanted)) {
                return line;
            }
        }
        panic!("{wanted:?} was not said, but {:#?}", self.said);
    }

    /// A client on this host, as root or the owner: by the socket.
    pub(crate) fn here(&self) -> Client {
        Client::unix(&self.directory.join("lunaport.sock"))
    }

    /// A client over the network that is nobody yet.
    pub(crate) fn nobody(&self) -> Client {
        Client::tcp(self.admin)
    }

    /// No file of it grows beyond this from now on.
    pub(crate) fn limit_file_size(&self, bytes: Option<u64>) {
        self.limit(rustix::process::Resource::Fsize, bytes, None);
    }

    /// It may have so many files open from now on.
    pub(crate) fn limit_open_files(&self, files: u64) {
        self.limit(rustix::process::Resource::Nofile, Some(files), Some(20_000));
    }

    fn limit(&self, resource: rustix::process::Resource, current: Option<u64>, maximum: Option<u64>) {
        use rustix::process::{Pid, Rlimit, prlimit};
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        prlimit(pid, resource, Rlimit { current, maximum }).unwrap();
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// An address that was free a moment ago.
pub(crate) fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// A whole configuration: one target that everybody may use, with one disk at LUN 0.
pub(crate) fn one_disk(target: &str) -> Value {
    serde_json::json!({
        "targets": [{"name": target}],
        "stores": [{"id": "one", "place": {"kind": "file", "path": "one.img", "size": 1 << 20}}],
        "units": [{"id": "one", "store": "one"}],
        "luns": [{"target": target, "lun": 0, "unit": "one"}],
        "access": [{"id": "any", "target": target, "any": true}],
    })
}
