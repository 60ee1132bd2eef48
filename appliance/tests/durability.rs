//! What was acknowledged is there after any end of the process; what was not is there whole or not at all.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::Server;
use common::http::Client;
use serde_json::{Value, json};

/// Pairs of objects that are always changed together: number of the pair to the value that was acknowledged last, and
/// the one that is under way.
type Ledger = Arc<Mutex<BTreeMap<u64, (u64, u64)>>>;

/// Changes pairs of groups, one after the other, until the process is gone. The two of a pair get the same value in one
/// change.
fn writer(here: &Client, ledger: &Ledger, pair: u64, values: &AtomicU64) {
    loop {
        let value = values.fetch_add(1, Ordering::Relaxed);
        ledger.lock().unwrap().entry(pair).or_default().1 = value;
        let group = |half: &str| json!({"id": format!("p{pair}-{half}"), "description": value.to_string()});
        let body = json!({"groups": [group("a"), group("b")]}).to_string();
        match here.send("PUT", "/api/v1/config", Some(&body)) {
            Ok(answer) if answer.status == 200 => {
                ledger.lock().unwrap().entry(pair).or_default().0 = value;
            }
            Ok(answer) => panic!("{}", answer.body),
            Err(_) => return,
        }
    }
}

fn pairs(groups: &Value) -> BTreeMap<u64, Vec<u64>> {
    let mut pairs: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for group in groups["items"].as_array().unwrap() {
        let pair = group["id"].as_str().unwrap()[1..]
            .split('-')
            .next()
            .unwrap()
            .parse()
            .unwrap();
        pairs
            .entry(pair)
            .or_default()
            .push(group["description"].as_str().unwrap().parse().unwrap());
    }
    pairs
}

/// `LUNAPORT_KILL_ROUNDS` makes it longer.
#[test]
fn killed_at_any_moment_it_has_every_acknowledged_change_and_no_half_one() {
    let rounds = std::env::var("LUNAPORT_KILL_ROUNDS").map_or(50, |rounds| rounds.parse().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let (ledger, values) = (Ledger::default(), Arc::new(AtomicU64::new(1)));
    let mut acknowledged = 0;
    for round in 0..rounds {
        let mut server = Server::start(directory.path());
        let here = server.here();
        let writers: Vec<_> = (0..4)
            .map(|pair| {
                let (here, ledger, values) = (here.clone(), Arc::clone(&ledger), Arc::clone(&values));
                std::thread::spawn(move || writer(&here, &ledger, pair, &values))
            })
            .collect();
        // No moment is awaited: any will do, and each round has another one.
        std::thread::sleep(Duration::from_millis(20 + 37 * round % 211));
        server.kill();
        for writer in writers {
            writer.join().unwrap();
        }
        let server = Server::start(directory.path());
        let found = pairs(&server.here().get("/api/v1/groups").is(200));
        for (pair, (done, under_way)) in ledger.lock().unwrap().iter_mut() {
            let there = found.get(pair).cloned().unwrap_or_default();
            let whole: Vec<Vec<u64>> = [*done, *under_way].iter().map(|value| vec![*value; 2]).collect();
            let is_fresh = *done == 0 && there.is_empty();
            assert!(
                is_fresh || whole.contains(&there),
                "round {round}: pair {pair} is {there:?}, not {whole:?}"
            );
            *done = there.first().copied().unwrap_or(0);
            acknowledged = acknowledged.max(*done);
        }
    }
    assert!(
        acknowledged > rounds,
        "too few changes to prove anything: {acknowledged}"
    );
}

/// Fills the state until nothing more can be saved, then gives it space again. A file that cannot grow stands for a file
/// system that is full.
fn full(name: &dyn Fn(u64) -> String) {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::start(directory.path());
    let here = server.here();
    let group =
        |number: u64| json!({"id": name(number), "description": format!("{number} {}", "x".repeat(3000))});
    let put = |number: u64| here.put(&format!("/api/v1/groups/{}", name(number)), &group(number));
    put(0).is(201);
    server.limit_file_size(Some(600 << 10));
    let mut last = 0;
    let problem = loop {
        let answer = put(last + 1);
        if answer.status >= 300 {
            break answer.is(507);
        }
        last += 1;
        assert!(last < 2000, "it never becomes full");
    };
    assert_eq!(problem["type"], "urn:lunaport:not-saved");
    assert!(
        problem["fix"].as_str().unwrap().contains("free some space"),
        "{problem}"
    );
    let is_last = |server: &Server, number: u64| {
        let found = server.here().get(&format!("/api/v1/groups/{}", name(number)));
        let found = serde_json::from_str::<Value>(&found.body).unwrap();
        assert_eq!(found, group(number));
    };
    is_last(&server, last);
    put(last + 1).is(507);
    server.limit_file_size(None);
    assert!(put(last + 1).status < 300);
    is_last(&server, last + 1);
    server.kill();
    is_last(&Server::start(directory.path()), last + 1);
}

#[test]
fn a_change_that_does_not_fit_into_the_copy_is_refused_and_made_when_there_is_space_again() {
    full(&|number| format!("g{number}"));
}

#[test]
fn a_change_that_does_not_fit_into_the_database_is_refused_and_made_when_there_is_space_again() {
    full(&|_| "always-the-same".to_owned());
}
