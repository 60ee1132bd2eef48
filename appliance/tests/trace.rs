//! Traces of PDUs through the API: what is kept, what is never kept, and what Wireshark makes of the file.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::process::Command;

use common::Server;
use common::http::Client;
use common::initiator::{Login, NAME, Session, login_request};
use iscsi_proto::pdu::{
    DataOut, Function, LoginStage, LogoutReason, LogoutRequest, NopOut, Request, Response, ScsiCommand,
    TaskAttribute, TaskManagementRequest, TextRequest,
};
use iscsi_proto::text::{parse_binary, parse_pairs, push_pair};
use iscsi_proto::{Cid, Itt, Lun, Sn, Ttt};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

const TARGET: &str = "iqn.2026-11.org.example:a";
/// What is written to the disk, and found in no trace that was not asked to keep it.
const MARK: &[u8] = b"the contents of the disk";

fn started() -> (tempfile::TempDir, Server) {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    server
        .here()
        .put("/api/v1/config", &common::one_disk(TARGET))
        .is(200);
    (directory, server)
}

/// Begins a trace of everybody's logins; gives its path.
fn begin(here: &Client, payload: u32) -> String {
    let wish = json!({"initiator": "*", "payload": payload});
    let begun = here.post("/api/v1/traces", &wish).is(201);
    format!("/api/v1/traces/{}", begun["id"])
}

fn rows(here: &Client, trace: &str) -> Vec<Value> {
    let page = here.get(&format!("{trace}/pdus?limit=1000")).is(200);
    page["items"].as_array().unwrap().clone()
}

/// Something of everything, one after the other.
fn converse(server: &Server, digests: &[(&str, &str)]) {
    let login = Login {
        more: digests,
        ..Login::to(TARGET)
    };
    let mut talk = Talk {
        session: login.at(server.portal).unwrap(),
        cmd_sn: Sn(1),
        exp_stat_sn: Sn(1),
    };
    // The unit attention of a new nexus.
    talk.command(&[0x00], 0, false);
    assert!(matches!(talk.session.hear().0, Response::ScsiResponse(response) if response.status == 2));
    talk.command(&[0x12, 0, 0, 0, 96], 96, false);
    assert!(matches!(talk.session.hear().0, Response::DataIn(_)));
    talk.command(&[0x2a, 0, 0, 0, 0, 0, 0, 0, 1], 512, true);
    let Response::R2t(r2t) = talk.session.hear().0 else {
        panic!("no R2T")
    };
    let mut block = MARK.to_vec();
    block.resize(512, 0);
    talk.session.say(&data_out(r2t.itt, r2t.ttt), &block);
    assert!(matches!(talk.session.hear().0, Response::ScsiResponse(response) if response.status == 0));
    talk.command(&[0x28, 0, 0, 0, 0, 0, 0, 0, 1], 512, false);
    assert_eq!(talk.session.hear().1, block);
    let (cmd_sn, exp_stat_sn) = talk.next();
    let nop = NopOut {
        immediate: false,
        lun: Lun::ZERO,
        itt: Itt(90),
        ttt: Ttt::RESERVED,
        cmd_sn,
        exp_stat_sn,
    };
    talk.session.say(&Request::NopOut(nop), b"ping");
    assert_eq!(talk.session.hear().1, b"ping");
    let (cmd_sn, exp_stat_sn) = talk.next();
    let text = TextRequest {
        immediate: false,
        is_final: true,
        continues: false,
        lun: Lun::ZERO,
        itt: Itt(91),
        ttt: Ttt::RESERVED,
        cmd_sn,
        exp_stat_sn,
    };
    talk.session.say(&Request::Text(text), b"SendTargets=\0");
    assert!(talk.session.hear().1.starts_with(b"TargetName="));
    let (cmd_sn, exp_stat_sn) = talk.next();
    let abort = TaskManagementRequest {
        immediate: false,
        function: Function::LogicalUnitReset,
        lun: Lun::ZERO,
        itt: Itt(92),
        referenced_itt: Itt::RESERVED,
        cmd_sn,
        exp_stat_sn,
        ref_cmd_sn: Sn(0),
        exp_data_sn: 0,
    };
    talk.session.say(&Request::TaskManagement(abort), b"");
    assert!(matches!(talk.session.hear().0, Response::TaskManagement(_)));
    let (cmd_sn, exp_stat_sn) = talk.next();
    let logout = LogoutRequest {
        immediate: false,
        reason: LogoutReason::CloseSession,
        itt: Itt(93),
        cid: Cid(1),
        cmd_sn,
        exp_stat_sn,
    };
    talk.session.say(&Request::Logout(logout), b"");
    assert!(matches!(talk.session.hear().0, Response::Logout(_)));
    assert!(talk.session.was_closed());
}

/// Names and operation codes of that conversation.
const CONVERSATION: [(&str, u8); 20] = [
    ("Login Request", 0x03),
    ("Login Response", 0x23),
    ("SCSI Command", 0x01),
    ("SCSI Response", 0x21),
    ("SCSI Command", 0x01),
    ("SCSI Data-In", 0x25),
    ("SCSI Command", 0x01),
    ("R2T", 0x31),
    ("SCSI Data-Out", 0x05),
    ("SCSI Response", 0x21),
    ("SCSI Command", 0x01),
    ("SCSI Data-In", 0x25),
    ("NOP-Out", 0x00),
    ("NOP-In", 0x20),
    ("Text Request", 0x04),
    ("Text Response", 0x24),
    ("Task Management Function Request", 0x02),
    ("Task Management Function Response", 0x22),
    ("Logout Request", 0x06),
    ("Logout Response", 0x26),
];

struct Talk {
    session: Session,
    cmd_sn: Sn,
    exp_stat_sn: Sn,
}

impl Talk {
    fn next(&mut self) -> (Sn, Sn) {
        (self.cmd_sn.advance(), self.exp_stat_sn.advance())
    }

    fn command(&mut self, cdb: &[u8], expected_len: u32, write: bool) {
        let (cmd_sn, exp_stat_sn) = self.next();
        let mut padded = [0; 16];
        padded[..cdb.len()].copy_from_slice(cdb);
        let command = ScsiCommand {
            immediate: false,
            is_final: true,
            read: !write && expected_len > 0,
            write,
            attribute: TaskAttribute::Simple,
            priority: 0,
            lun: Lun::ZERO,
            itt: Itt(cmd_sn.0),
            expected_len,
            cmd_sn,
            exp_stat_sn,
            cdb: padded,
        };
        self.session.say(&Request::ScsiCommand(command), b"");
    }
}

fn data_out(itt: Itt, ttt: Ttt) -> Request {
    Request::DataOut(DataOut {
        is_final: true,
        lun: Lun::ZERO,
        itt,
        ttt,
        exp_stat_sn: Sn(3),
        data_sn: 0,
        offset: 0,
    })
}

fn holds(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle)
}

#[test]
fn a_conversation_is_listed_pdu_by_pdu_with_what_each_says() {
    let (_directory, server) = started();
    let here = server.here();
    let trace = begin(&here, 0);
    converse(&server, &[]);
    let rows = rows(&here, &trace);
    let names: Vec<_> = rows.iter().map(|row| row["name"].as_str().unwrap()).collect();
    let expected: Vec<_> = CONVERSATION.iter().map(|(name, _)| *name).collect();
    assert_eq!(names.first(), Some(&"opened"));
    assert_eq!(names.last(), Some(&"closed"));
    assert_eq!(names[1..names.len() - 1], expected);

    let login = &rows[1];
    assert_eq!(login["from"], "initiator");
    assert!(
        login["text"]
            .as_array()
            .unwrap()
            .contains(&json!({"key": "InitiatorName", "value": NAME}))
    );
    assert_eq!(rows[2]["status"], "success, operational to full feature");
    assert_eq!(rows[3]["command"], "TEST UNIT READY");
    assert_eq!(
        (&rows[3]["cmd_sn"], &rows[3]["itt"]),
        (&json!(1), &json!("0x00000001"))
    );
    assert_eq!(rows[4]["status"], "CHECK CONDITION");
    assert!(rows[4]["sense"].as_str().unwrap().starts_with("06/29/"));
    assert_eq!(
        (&rows[7]["command"], &rows[7]["lun"]),
        (&json!("WRITE (10)"), &json!("0"))
    );
    assert_eq!(rows[8]["expected_length"], 512);
    assert_eq!(
        (&rows[9]["data_length"], &rows[9]["kept"]),
        (&json!(512), &json!(0))
    );
    assert_eq!(rows[12]["status"], "GOOD");
    assert_eq!(rows[17]["status"], "logical unit reset");
    assert_eq!(rows[20]["status"], "success");
    assert_eq!(rows[21]["note"], "the initiator logged out");
}

#[test]
fn data_are_in_the_file_only_when_asked_for() {
    let (_directory, server) = started();
    let here = server.here();
    let (without, with) = (begin(&here, 0), begin(&here, 4096));
    converse(&server, &[]);
    let file = |trace: &str| {
        let answer = here.get(&format!("{trace}/pcap"));
        assert_eq!(answer.header("content-type"), Some("application/x-pcapng"));
        answer.bytes
    };
    assert!(!holds(&file(&without), MARK));
    assert!(!holds(&file(&without), b"ping"));
    assert!(holds(&file(&with), MARK));
    assert!(holds(&file(&with), b"ping"));
}

#[test]
fn a_session_that_is_there_already_is_traced_and_its_end_ends_the_trace() {
    let (_directory, server) = started();
    let here = server.here();
    let session = Login::to(TARGET).at(server.portal).unwrap();
    let tsih = here.get("/api/v1/sessions").is(200)["items"][0]["tsih"].clone();
    let begun = here.post("/api/v1/traces", &json!({"session": tsih})).is(201);
    assert_eq!(begun["state"], "running");
    let trace = format!("/api/v1/traces/{}", begun["id"]);
    here.delete(&format!("/api/v1/sessions/{tsih}")).is(204);
    assert!(session.was_closed());
    let rows = rows(&here, &trace);
    assert_eq!(rows[0]["name"], "Asynchronous Message");
    assert_eq!(here.get(&trace).is(200)["state"], "session-ended");
}

/// Secrets and proofs of CHAP, of logins that fail and of logins that do not.
#[test]
fn secrets_of_chap_are_in_no_list_no_file_and_no_event() {
    let (_directory, server) = started();
    let here = server.here();
    let secret = "the-chap-secret";
    here.post(
        "/api/v1/credentials",
        &json!({"id": "c", "name": "chap-user", "secret": secret}),
    )
    .is(201);
    let chap = json!({"authentication": {"method": "chap", "credentials": ["c"]}});
    here.patch(&format!("/api/v1/targets/{TARGET}"), &chap).is(200);
    let trace = begin(&here, 262_144);
    let said = [
        login_by_chap(&server, "wrong secret"),
        login_by_chap(&server, secret),
    ]
    .concat();
    let rows = rows(&here, &trace);
    let statuses: Vec<_> = rows
        .iter()
        .filter(|row| row["name"] == "Login Response")
        .filter_map(|row| row["status"].as_str())
        .collect();
    assert_eq!(statuses.len(), 6);
    assert!(statuses[2].starts_with("authentication failure"), "{statuses:?}");
    assert!(statuses[5].starts_with("success"), "{statuses:?}");
    let file = here.get(&format!("{trace}/pcap")).bytes;
    let list = here.get(&format!("{trace}/pdus?limit=1000")).bytes;
    let events = here.get("/api/v1/events?limit=1000").bytes;
    assert!(holds(&list, b"CHAP_R"));
    assert!(holds(&file, b"CHAP_R=*"));
    assert_eq!(said.len(), 6);
    for word in said.iter().map(String::as_str).chain([secret]) {
        assert!(!holds(&file, word.as_bytes()), "{word} is in the file");
        assert!(!holds(&list, word.as_bytes()), "{word} is in the list");
    }
    assert!(!holds(&file, b"chap-user"));
    // Why a login failed is said with the name, as in the log; what was sent is not shown with it.
    let pairs = rows.iter().map(|row| row["text"].to_string());
    assert!(pairs.into_iter().all(|pairs| !pairs.contains("chap-user")));
    assert!(!holds(&events, secret.as_bytes()));
}

/// Logs in with a proof of this secret; gives name, challenge and response as they were said.
fn login_by_chap(server: &Server, secret: &str) -> Vec<String> {
    let mut session = Session::connect(server.portal);
    let mut request = login_request();
    (request.current_stage, request.next_stage) = (LoginStage::Security, LoginStage::Operational);
    let mut ask = |session: &mut Session, transit, stat_sn, pairs: &[(&str, &str)]| {
        request.transit = transit;
        request.exp_stat_sn = Sn(stat_sn);
        let mut data = Vec::new();
        pairs
            .iter()
            .for_each(|(key, value)| push_pair(&mut data, key, value));
        session.say(&Request::Login(request.clone()), &data);
        parse_pairs(&session.hear().1).unwrap()
    };
    let who = [
        ("InitiatorName", NAME),
        ("TargetName", TARGET),
        ("SessionType", "Normal"),
        ("AuthMethod", "CHAP"),
    ];
    ask(&mut session, false, 0, &who);
    let asked = ask(&mut session, false, 1, &[("CHAP_A", "7")]);
    let value = |key: &str| asked.iter().find(|pair| pair.key == key).unwrap().value.clone();
    let challenge = value("CHAP_C");
    let identifier: u8 = value("CHAP_I").parse().unwrap();
    let mut hash = Sha256::new();
    hash.update([identifier]);
    hash.update(secret);
    hash.update(parse_binary(&challenge, 1024).unwrap());
    let response = iscsi_proto::text::format_hex(&hash.finalize());
    ask(
        &mut session,
        true,
        2,
        &[("CHAP_N", "chap-user"), ("CHAP_R", &response)],
    );
    vec![challenge, response, secret.to_owned()]
}

#[test]
fn what_cannot_be_traced_is_refused_with_the_reason() {
    let (_directory, server) = started();
    let here = server.here();
    let refused = |wish: Value| here.post("/api/v1/traces", &wish).is(422)["problems"][0]["path"].clone();
    assert_eq!(refused(json!({})), "session");
    assert_eq!(refused(json!({"session": 1, "initiator": "*"})), "session");
    assert_eq!(refused(json!({"session": 1})), "session");
    assert_eq!(refused(json!({"initiator": "*", "seconds": 0})), "seconds");
    assert_eq!(refused(json!({"initiator": "*", "seconds": 3601})), "seconds");
    assert_eq!(refused(json!({"initiator": "*", "payload": 262_145})), "payload");
    here.post("/api/v1/traces", &json!({"session": 65_536})).is(400);
    here.post("/api/v1/traces", &json!({"address": "nowhere"}))
        .is(400);
    let traces: Vec<_> = (0..4).map(|_| begin(&here, 0)).collect();
    let full = here.post("/api/v1/traces", &json!({"initiator": "*"})).is(409);
    assert_eq!(full["type"], "urn:lunaport:too-many-traces");
    here.delete(&traces[0]).is(204);
    here.delete(&traces[0]).is(204);
    here.get(&traces[0]).is(404);
    here.get("/api/v1/traces/4294967296").is(404);
    begin(&here, 0);
}

#[test]
fn traces_are_for_operators_and_everything_about_them_is_noted() {
    let (_directory, server) = started();
    let here = server.here();
    let trace = begin(&here, 0);
    let token = |id: &str, role: &str| {
        let made = here
            .post("/api/v1/tokens", &json!({"id": id, "role": role}))
            .is(201);
        server.nobody().bearer(made["token"].as_str().unwrap())
    };
    let (viewer, operator) = (token("v", "viewer"), token("o", "operator"));
    viewer.get(&trace).is(200);
    viewer.get(&format!("{trace}/pdus")).is(403);
    viewer.get(&format!("{trace}/pcap")).is(403);
    viewer.post("/api/v1/traces", &json!({"initiator": "*"})).is(403);
    viewer.post(&format!("{trace}/stop"), &json!({})).is(403);
    viewer.delete(&trace).is(403);
    server.nobody().get(&trace).is(401);
    assert_eq!(operator.get(&format!("{trace}/pcap")).status, 200);
    assert_eq!(
        operator.post(&format!("{trace}/stop"), &json!({})).is(200)["state"],
        "stopped"
    );
    operator.delete(&trace).is(204);
    let noted = |kind: &str| here.get(&format!("/api/v1/events?kind={kind}")).is(200);
    assert!(
        noted("trace-began")["items"][0]["text"]
            .as_str()
            .unwrap()
            .contains("logins of *")
    );
    assert!(
        noted("trace-taken")["items"][0]["actor"]
            .as_str()
            .unwrap()
            .contains('o')
    );
    assert_eq!(noted("trace-ended")["total"], 2);
}

/// What Wireshark says of a capture: operation codes in order, and everything it complains of.
fn tshark(file: &[u8], port: u16) -> (Vec<u8>, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace.pcapng");
    std::fs::write(&path, file).unwrap();
    let run = |more: &[&str]| {
        let output = Command::new("tshark")
            .arg("-r")
            .arg(&path)
            .args(["-d", &format!("tcp.port=={port},iscsi")])
            .args(["-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE"])
            .args(more)
            .output()
            .expect("tshark is installed: apt-get install tshark");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    };
    let opcodes = run(&["-T", "fields", "-E", "occurrence=a", "-e", "iscsi.opcode"]);
    let opcodes = opcodes.split([',', '\n', '\t']).filter(|field| !field.is_empty());
    let opcodes = opcodes.map(|field| u8::from_str_radix(field.trim_start_matches("0x"), 16).unwrap());
    let complaints = run(&[
        "-Y",
        "_ws.malformed || _ws.expert.severity >= 0x600000 || tcp.checksum.status == 0 || ip.checksum.status == 0",
        "-V",
    ]);
    (opcodes.collect(), complaints)
}

#[test]
#[ignore = "needs tshark: ./check runs it"]
fn wireshark_reads_the_file_as_the_conversation_that_it_was() {
    let (_directory, server) = started();
    let here = server.here();
    let digests = [("HeaderDigest", "CRC32C"), ("DataDigest", "CRC32C")];
    let opcodes: Vec<_> = CONVERSATION.iter().map(|(_, opcode)| *opcode).collect();
    for more in [[].as_slice(), &digests] {
        for payload in [0, 262_144] {
            let trace = begin(&here, payload);
            converse(&server, more);
            let file = here.get(&format!("{trace}/pcap")).bytes;
            let (read, complaints) = tshark(&file, server.portal.port());
            assert_eq!(read, opcodes, "digests {more:?}, payload {payload}");
            assert_eq!(complaints, "", "digests {more:?}, payload {payload}");
            here.delete(&trace).is(204);
        }
    }
}
