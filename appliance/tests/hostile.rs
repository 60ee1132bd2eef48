//! The management under clients that mean no good, or are broken: what they get is an answer that says why, or nothing, and
//! what they cost is bounded.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::symlink;
use std::time::Instant;

use common::http::Client;
use common::{PATIENCE, Server};
use serde_json::{Value, json};

fn started() -> (tempfile::TempDir, Server) {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    (directory, server)
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Whatever comes until the other end closes, or breaks off.
fn rest(mut stream: TcpStream) -> String {
    let mut text = Vec::new();
    drop(stream.read_to_end(&mut text));
    String::from_utf8_lossy(&text).into_owned()
}

fn say(server: &Server, text: &[u8]) -> String {
    let mut stream = connect(server.admin);
    // It may be answered before it is through.
    drop(stream.write_all(text));
    rest(stream)
}

fn token(server: &Server, role: &str) -> Client {
    let made = server
        .here()
        .post("/api/v1/tokens", &json!({"id": role, "role": role}))
        .is(201);
    server.nobody().bearer(made["token"].as_str().unwrap())
}

#[test]
fn one_address_cannot_take_the_places_of_all() {
    let (_directory, server) = started();
    let silent: Vec<_> = (0..64).map(|_| connect(server.admin)).collect();
    // Every one of them was accepted when one behind them is turned away.
    let deadline = Instant::now() + PATIENCE;
    while server.nobody().send("GET", "/healthz", None).is_ok() {
        assert!(Instant::now() < deadline, "never refused");
    }
    let socket = rustix::net::socket(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::STREAM,
        None,
    )
    .unwrap();
    rustix::net::bind(&socket, &"127.0.0.2:0".parse::<SocketAddr>().unwrap()).unwrap();
    rustix::net::connect(&socket, &server.admin).unwrap();
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
        .write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .unwrap();
    assert!(rest(stream).starts_with("HTTP/1.1 200"));
    server.here().get("/api/v1/status").is(200);
    drop(silent);
}

#[test]
fn whoever_is_nobody_is_not_listened_to_for_long() {
    let (_directory, server) = started();
    let head = |path: &str, len: usize| {
        format!("POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len}\r\n\r\n")
    };
    // No byte of these bodies is sent: the answer does not wait for them.
    let answer = say(&server, head("/api/v1/session", 300_000).as_bytes());
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    assert!(answer.contains("urn:lunaport:payload-too-large"), "{answer}");
    let answer = say(&server, head("/api/v1/stores", 1 << 40).as_bytes());
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    let answer = say(&server, head("/api/v1/stores", 1000).as_bytes());
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    // Lengths that are not announced are counted.
    let mut chunks = b"POST /api/v1/session HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    chunks.extend(format!("50000\r\n{}", " ".repeat(0x50000)).as_bytes());
    let answer = say(&server, &chunks);
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
}

#[test]
fn broken_http_is_answered_or_ended_and_harms_nobody() {
    let (_directory, server) = started();
    let header = |fields: &str| format!("GET /healthz HTTP/1.1\r\nHost: x\r\n{fields}\r\n").into_bytes();
    let broken: Vec<Vec<u8>> = vec![
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(),
        b"\0\0\0\0\r\n\r\n".to_vec(),
        b"GET / HTTP/9.9\r\n\r\n".to_vec(),
        b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        header(&format!("X: {}\r\n", "a".repeat(1 << 20))),
        header(&"A: b\r\n".repeat(10_000)),
        header("Content-Length: 5\r\nContent-Length: 6\r\n"),
        header("Content-Length: -1\r\n"),
        header("Content-Length: 99999999999999999999999\r\n"),
        b"POST /api/v1/session HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n".to_vec(),
        b"POST /api/v1/session HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n".to_vec(),
        b"POST /api/v1/session HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n"
            .to_vec(),
    ];
    for text in broken {
        let mut stream = connect(server.admin);
        // It may be ended before it is through.
        drop(stream.write_all(&text));
        drop(stream.shutdown(std::net::Shutdown::Write));
        let answer = rest(stream);
        let shown = String::from_utf8_lossy(&text[..text.len().min(80)]).into_owned();
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 4") || answer.starts_with("HTTP/1.1 200"),
            "{shown:?} is answered with {answer:?}"
        );
    }
    server.here().get("/api/v1/status").is(200);
}

#[test]
fn every_refusal_is_a_problem_that_says_why() {
    let (_directory, server) = started();
    let here = server.here();
    for (method, path, body, status) in [
        ("PATCH", "/api/v1/status", Some("{}"), 405),
        ("BREW", "/api/v1/targets", None, 405),
        ("GET", "/api/v2/targets", None, 404),
        ("GET", "/api/v1/targets?limit=-1", None, 400),
        ("GET", "/api/v1/targets?limit=99999999999999999999", None, 400),
        ("GET", "/api/v1/events?kind=nonsense", None, 400),
        ("GET", "/api/v1/targets/%ff", None, 400),
        ("GET", "/api/v1/targets/..%2f..%2fetc%2fpasswd", None, 404),
        ("DELETE", "/api/v1/sessions/65536", None, 404),
        ("GET", "/api/v1/traces/-1", None, 404),
        ("POST", "/api/v1/targets", Some("[]"), 400),
        ("POST", "/api/v1/targets", Some("null"), 400),
        ("POST", "/api/v1/targets", Some("\u{0}"), 400),
        ("POST", "/api/v1/targets", Some("{\"name\": 1e400}"), 400),
        (
            "PUT",
            "/api/v1/config",
            Some("{\"luns\": [{\"target\": \"iqn.2026-11.org.example:a\", \"lun\": -1, \"unit\": \"a\"}]}"),
            400,
        ),
        ("PUT", "/api/v1/config?dry-run=perhaps", Some("{}"), 400),
    ] {
        let answer = here.send(method, path, body).unwrap();
        assert_eq!(answer.status, status, "{method} {path}: {}", answer.body);
        assert_eq!(
            answer.header("content-type"),
            Some("application/problem+json"),
            "{method} {path}: {}",
            answer.body
        );
    }
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    here.send("POST", "/api/v1/targets", Some(&deep)).unwrap().is(400);
    here.send("PUT", "/api/v1/config", Some(&deep)).unwrap().is(400);
}

#[test]
fn guesses_that_are_made_at_once_are_counted_like_others() {
    let (_directory, server) = started();
    server
        .here()
        .put(
            "/api/v1/users/admin",
            &json!({"role": "admin", "password": "correct horse"}),
        )
        .is(200);
    let nobody = &server.nobody();
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let guess = |number: usize| {
            let wrong = json!({"name": "admin", "password": format!("guess {number}")});
            nobody.post("/api/v1/session", &wrong).status
        };
        let guesses: Vec<_> = (0..40).map(|number| scope.spawn(move || guess(number))).collect();
        guesses.into_iter().map(|guess| guess.join().unwrap()).collect()
    });
    let tried = statuses.iter().filter(|&&status| status == 401).count();
    // Five are free; one more may come when the first pause, of a second, is over.
    assert!((5..=7).contains(&tried), "{statuses:?}");
    assert_eq!(
        statuses.iter().filter(|&&status| status == 429).count(),
        40 - tried
    );
}

#[test]
fn event_streams_are_so_many_and_end_with_the_right_to_follow() {
    let (_directory, server) = started();
    let viewer = token(&server, "viewer");
    let mut followed = viewer.follow("/api/v1/events/stream");
    let mut begin = [0; 12];
    followed.read_exact(&mut begin).unwrap();
    assert_eq!(&begin, b"HTTP/1.1 200");
    let here = server.here();
    let others: Vec<_> = (0..63).map(|_| here.follow("/api/v1/events/stream")).collect();
    let deadline = Instant::now() + PATIENCE;
    while here.get("/api/v1/status").status != 200 || !is_full(&here) {
        assert!(Instant::now() < deadline, "more than so many");
    }
    drop(others);
    here.delete("/api/v1/tokens/viewer").is(204);
    let mut text = String::new();
    followed.read_to_string(&mut text).unwrap();
    assert!(!text.contains("tokens/viewer"), "{text}");
}

/// Whether one more stream is refused; one that is not is let go of at once.
fn is_full(here: &Client) -> bool {
    let mut stream = here.follow("/api/v1/events/stream");
    let mut begin = [0; 12];
    stream.read_exact(&mut begin).unwrap();
    &begin == b"HTTP/1.1 429"
}

/// An operator serves disks; what the program keeps about who may do what is none.
#[test]
fn the_programs_own_state_is_no_disk_whatever_it_is_called() {
    let (directory, server) = started();
    let operator = token(&server, "operator");
    symlink("state.json", directory.path().join("innocent.img")).unwrap();
    symlink(".", directory.path().join("here")).unwrap();
    let make = |path: &str| {
        let store = json!({"id": "s", "place": {"kind": "file", "path": path}});
        operator.post("/api/v1/stores", &store)
    };
    let absolute = directory.path().join("state.json");
    for path in [
        "state.json",
        "./state.json",
        "state.json.1",
        absolute.to_str().unwrap(),
        "db/db",
        "events.jsonl",
        "innocent.img",
        "here/state.json",
        "here/here/db/db",
        "../state.json",
        "/etc/passwd",
        "",
    ] {
        let refused = make(path).is(422);
        assert!(
            refused["problems"][0]["path"]
                .as_str()
                .unwrap()
                .starts_with("stores/s/place"),
            "{path}: {refused}"
        );
    }
    let key = json!({"id": "s", "encrypt": "state.json", "place": {"kind": "file", "path": "d.img", "size": 1 << 20}});
    operator.post("/api/v1/stores", &key).is(422);
    assert!(!directory.path().join("d.img").exists());
}

#[test]
fn where_disks_may_be_is_for_administrators_to_say() {
    let (directory, server) = started();
    let (operator, admin) = (token(&server, "operator"), token(&server, "admin"));
    let roots = json!({"store_roots": ["/"]});
    operator.put("/api/v1/settings", &roots).is(403);
    let whole = json!({"settings": roots});
    let refused = operator.put("/api/v1/config", &whole);
    assert!(refused.status == 403 || refused.status == 400, "{}", refused.body);
    assert_eq!(
        server.here().get("/api/v1/settings").is(200)["store_roots"],
        Value::Null
    );
    let own = json!({"store_roots": [directory.path()]});
    admin.put("/api/v1/settings", &own).is(200);
    // Whoever leaves them as they are may change the rest.
    let limits = json!({"store_roots": [directory.path()], "limits": {"MaxBurstLength": "131072"}});
    operator.put("/api/v1/settings", &limits).is(200);
}

#[test]
fn two_who_adopt_one_file_at_once_do_not_both_get_it() {
    let (directory, server) = started();
    std::fs::write(directory.path().join("disk.img"), vec![0; 1 << 20]).unwrap();
    let here = &server.here();
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let adopt = |number: usize| {
            let store = json!({"id": format!("s{number}"), "place": {"kind": "file", "path": "disk.img"}});
            here.post("/api/v1/stores", &store).status
        };
        let adopters: Vec<_> = (0..8).map(|number| scope.spawn(move || adopt(number))).collect();
        adopters.into_iter().map(|it| it.join().unwrap()).collect()
    });
    assert_eq!(
        statuses.iter().filter(|&&status| status == 201).count(),
        1,
        "{statuses:?}"
    );
    assert_eq!(
        statuses.iter().filter(|&&status| status == 422).count(),
        7,
        "{statuses:?}"
    );
    assert!(directory.path().join("disk.img").exists());
}

#[test]
fn sizes_beyond_all_measure_are_refused_and_leave_nothing() {
    let (directory, server) = started();
    let here = server.here();
    for (size, kind) in [
        (u64::MAX, "file"),
        (1 << 63, "file"),
        (i64::MAX as u64 / 512 * 512, "file"),
        (u64::MAX / 512 * 512, "memory"),
        (0, "memory"),
        (1, "null"),
    ] {
        let place = match kind {
            "file" => json!({"kind": kind, "path": "big.img", "size": size}),
            _ => json!({"kind": kind, "size": size}),
        };
        let answer = here.post("/api/v1/stores", &json!({"id": "big", "place": place}));
        assert_eq!(answer.status, 422, "{size} {kind}: {}", answer.body);
        assert!(!directory.path().join("big.img").exists());
    }
    here.get("/api/v1/status").is(200);
}
