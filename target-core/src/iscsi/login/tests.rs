//! Logins as scripts. The shapes of initiators' requests are written after what each is known to send, not captured.

use iscsi_proto::text::{format_hex, parse_binary, parse_pairs};
use iscsi_proto::{Sn, Tpgt};
use proptest::prelude::*;

use super::*;
use crate::control::{Access, ChapCredential, Parameters, Portal, Secret};
use crate::iscsi::SessionType;
use crate::iscsi::chap::Algorithm;
use crate::scsi::TargetDevice;

mod chap;
mod initiators;
mod keys;
mod refusals;
mod stages;

const INITIATOR: &str = "iqn.1993-08.org.debian:01:abc";
const TARGET: &str = "iqn.2024-01.org.example:disk";
const NAMES: &[(&str, &str)] = &[("InitiatorName", INITIATOR), ("TargetName", TARGET)];
const SECRET: &[u8] = b"a secret & # of $ours";
const OWN_SECRET: &[u8] = b"another secret";

/// A conversation with the login machine.
struct Script {
    login: Option<Login>,
    request: LoginRequest,
}

/// What one request came to.
#[derive(Debug)]
enum Outcome {
    Answered(LoginAnswer),
    Admitted(Admission, LoginAnswer),
    Refused(LoginFailure),
}

fn target() -> Target {
    Target {
        name: TARGET.parse().unwrap(),
        alias: None,
        tpgt: Tpgt(1),
        access: Access::Everyone,
        chap: ChapPolicy::Open,
        parameters: Parameters::default(),
        device: TargetDevice::new(TARGET.parse().unwrap(), &[Tpgt(1)]),
    }
}

fn directory(target: Target) -> Directory {
    Directory {
        targets: [(target.name.clone(), Arc::new(target))].into(),
        advertised: Vec::new(),
        portals: vec![Portal {
            address: "192.0.2.1:3260".parse().unwrap(),
            tpgt: Tpgt(1),
        }],
        ..Directory::default()
    }
}

fn chap_policy() -> ChapPolicy {
    ChapPolicy::Required {
        accepted: vec![ChapCredential {
            name: "alice".to_owned(),
            secret: Secret::new(SECRET.to_vec()),
        }],
        own: Some(ChapCredential {
            name: "storage".to_owned(),
            secret: Secret::new(OWN_SECRET.to_vec()),
        }),
    }
}

fn link() -> LinkInfo {
    LinkInfo {
        local: "192.0.2.1:3260".parse().unwrap(),
        peer: "192.0.2.9:40000".parse().unwrap(),
        transport: "tcp",
        keys: TransportKeys::default(),
    }
}

impl Script {
    fn new(directory: Directory) -> Self {
        Self::over(link(), directory)
    }

    fn over(link: LinkInfo, directory: Directory) -> Self {
        Self {
            login: Some(Login::new(link, Arc::new(directory), |bytes| bytes.fill(0x5a))),
            request: LoginRequest {
                transit: false,
                continues: false,
                current_stage: LoginStage::Security,
                next_stage: LoginStage::Security,
                version_max: 0,
                version_min: 0,
                isid: Isid([0x40, 0, 0, 1, 0, 0]),
                tsih: Tsih::NEW,
                itt: Itt(7),
                cid: Cid(0),
                cmd_sn: Sn(1),
                exp_stat_sn: Sn(0),
            },
        }
    }

    /// Keys without wish to leave the stage.
    fn stay(&mut self, stage: LoginStage, pairs: &[(&str, &str)]) -> Outcome {
        self.request.transit = false;
        self.request.current_stage = stage;
        self.request.next_stage = stage;
        self.send(&encode(pairs))
    }

    /// Keys with T=1.
    fn go(&mut self, from: LoginStage, to: LoginStage, pairs: &[(&str, &str)]) -> Outcome {
        self.request.transit = true;
        self.request.current_stage = from;
        self.request.next_stage = to;
        self.send(&encode(pairs))
    }

    fn send(&mut self, text: &[u8]) -> Outcome {
        let login = self.login.take().expect("the login goes on");
        match login.handle(&self.request, text) {
            LoginStep::Continue(login, answer) => {
                self.login = Some(login);
                Outcome::Answered(answer)
            }
            LoginStep::Admit(pending) => {
                let admission = pending.admission.clone();
                Outcome::Admitted(admission, pending.admitted(Tsih(9)).0)
            }
            LoginStep::Refuse(failure, answer) => {
                assert_eq!(failure.status, answer.status);
                assert!(!answer.transit && answer.text.is_empty());
                Outcome::Refused(failure)
            }
        }
    }
}

impl Outcome {
    #[track_caller]
    fn answered(self) -> LoginAnswer {
        match self {
            Self::Answered(answer) => answer,
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn admitted(self) -> (Admission, LoginAnswer) {
        match self {
            Self::Admitted(admission, answer) => (admission, answer),
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn refused(self) -> LoginFailure {
        match self {
            Self::Refused(failure) => failure,
            other => panic!("{other:?}"),
        }
    }
}

fn encode(pairs: &[(&str, &str)]) -> Vec<u8> {
    let mut text = Vec::new();
    for (key, value) in pairs {
        text::push_pair(&mut text, key, value);
    }
    text
}

/// The keys of an answer, `key=value`, sorted.
fn said(answer: &LoginAnswer) -> Vec<String> {
    let pairs = parse_pairs(&answer.text).unwrap();
    let mut said: Vec<_> = pairs
        .into_iter()
        .map(|pair| format!("{}={}", pair.key, pair.value))
        .collect();
    said.sort();
    said
}

/// Names and `keys` straight into the operational stage and on to full feature phase.
fn operational(directory: Directory, keys: &[(&str, &str)]) -> Outcome {
    let pairs = [NAMES, keys].concat();
    Script::new(directory).go(LoginStage::Operational, LoginStage::FullFeature, &pairs)
}

proptest! {
    #[test]
    fn no_sequence_of_requests_panics(
        steps in proptest::collection::vec(
            (any::<(bool, bool, u8, u8)>(), 0..6_usize, proptest::collection::vec(any::<u8>(), 0..40)),
            1..20,
        ),
        chap: bool,
    ) {
        let mut target = target();
        if chap {
            target.chap = chap_policy();
        }
        let mut script = Script::new(directory(target));
        for ((transit, continues, current, next), which, noise) in steps {
            let stage = |code| match code % 4 {
                0 | 1 => LoginStage::Security,
                2 => LoginStage::Operational,
                _ => LoginStage::FullFeature,
            };
            script.request.transit = transit;
            script.request.continues = continues;
            script.request.current_stage = stage(current);
            script.request.next_stage = stage(next);
            let text = match which {
                0 => encode(NAMES),
                1 => encode(&[("AuthMethod", "CHAP,None")]),
                2 => encode(&[("CHAP_A", "5")]),
                3 => encode(&[("CHAP_N", "alice"), ("CHAP_R", "0x00"), ("CHAP_I", "1"), ("CHAP_C", "0x01")]),
                4 => encode(&[("HeaderDigest", "CRC32C"), ("MaxBurstLength", "512")]),
                _ => noise,
            };
            script.send(&text);
            if script.login.is_none() {
                break;
            }
        }
    }

    #[test]
    fn order_of_keys_makes_no_difference(
        order in Just(keys::EVERY_KEY.to_vec()).prop_shuffle(),
    ) {
        let (sorted, first) = operational(directory(target()), keys::EVERY_KEY).admitted();
        let (shuffled, second) = operational(directory(target()), &order).admitted();
        prop_assert_eq!(sorted.params, shuffled.params);
        prop_assert_eq!(said(&first), said(&second));
    }
}
