//! Ways in for bytes that nobody would send. Each takes anything and must come back; what has to hold on the way is
//! asserted here. The fuzz targets (`fuzz/`) and the properties (`tests/properties.rs`) call the same functions.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use iscsi_proto::pdu::{LoginRequest, Request, Response};
use iscsi_proto::text::{
    parse_binary, parse_boolean, parse_list, parse_number, parse_pairs, parse_range, push_pair,
};
use iscsi_proto::{Ahs, BHS_LEN, Cid, IscsiName, Isid, Itt, Sn, Tpgt, Tsih};
use target_core::control::{Access, ChapCredential, ChapPolicy, Directory, Parameters, Secret, Target};
use target_core::iscsi::{LinkInfo, Login, LoginStep, TransportKeys};
use target_core::scsi::TargetDevice;

use crate::checked_disk::CheckedDisk;
use crate::script::TARGET;

/// Headers, as requests and as responses, and what is behind them as additional header segments.
///
/// # Panics
/// When a header that was understood says something else after it was written and read again.
pub fn pdu(bytes: &[u8]) {
    let Some((bhs, rest)) = bytes.split_first_chunk::<BHS_LEN>() else {
        return;
    };
    if let Ok(request) = Request::decode(bhs) {
        assert_eq!(Request::decode(&request.encode()), Ok(request.clone()));
        // Whatever asks a PDU about itself.
        let _ = (
            request.name(),
            request.itt(),
            request.cmd_sn(),
            request.exp_stat_sn(),
            request.immediate(),
        );
    }
    if let Ok(response) = Response::decode(bhs) {
        assert_eq!(Response::decode(&response.encode()), Ok(response));
    }
    if let Ok(ahs) = Ahs::decode(rest) {
        assert_eq!(Ahs::decode(&ahs.encode()), Ok(ahs));
    }
}

/// Text of keys and values, and each value in every form that a value can have.
///
/// # Panics
/// When pairs that were understood are others after they were written and read again.
pub fn text(bytes: &[u8]) {
    let Ok(pairs) = parse_pairs(bytes) else {
        return;
    };
    let mut written = Vec::new();
    for pair in &pairs {
        push_pair(&mut written, &pair.key, &pair.value);
        let _ = parse_number(&pair.value);
        let _ = parse_boolean(&pair.value);
        let _ = parse_range(&pair.value);
        let _ = parse_list(&pair.value);
        if let Ok(binary) = parse_binary(&pair.value, 64) {
            assert!(binary.len() <= 64);
        }
        let _ = pair.value.parse::<IscsiName>();
    }
    assert_eq!(parse_pairs(&written), Ok(pairs));
}

/// A whole login: pieces of a byte for stages and flags, a byte for the length, and text. The target requires CHAP.
///
/// # Panics
/// When the login lets somebody in who proved nothing, or does not end.
pub fn login(mut bytes: &[u8]) {
    let link = LinkInfo {
        local: loopback(3260),
        peer: loopback(50_000),
        transport: "tcp",
        keys: TransportKeys::default(),
    };
    let mut login = Login::new(link, locked_directory(), |bytes| bytes.fill(0x5a));
    let mut requests = 0;
    while let Some(([flags, len], rest)) = bytes.split_first_chunk::<2>() {
        let (text, rest) = rest.split_at(usize::from(*len).min(rest.len()));
        bytes = rest;
        let mut bhs = template().encode();
        bhs[1] = *flags;
        let Ok(Request::Login(request)) = Request::decode(&bhs) else {
            continue;
        };
        requests += 1;
        assert!(requests <= 100, "the login goes on for ever");
        match login.handle(&request, text) {
            LoginStep::Continue(next, answer) => {
                assert!(answer.text.len() <= 8192);
                login = next;
            }
            LoginStep::Admit(pending) => {
                let admission = &pending.admission;
                assert!(
                    admission.target.is_none() || admission.authenticated_as.is_some(),
                    "let in without proof"
                );
                return;
            }
            LoginStep::Refuse(failure, _) => {
                assert!(!failure.to_string().is_empty());
                return;
            }
        }
    }
}

/// Commands on a small disk, one after the other: each is sixteen bytes of CDB, a byte that says where data go, two bytes
/// for the length of Data-Out, and a byte for how many bytes follow, which Data-Out repeats.
///
/// # Panics
/// When a command does not end, ends twice, gives more data than there is room for, or leaves other contents behind than
/// the model beside the disk expects.
pub fn cdb(mut bytes: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime needs nothing but memory");
    runtime.block_on(async {
        let mut disk = CheckedDisk::new();
        for _ in 0..MAXIMUM_COMMANDS {
            let Some((cdb, rest)) = bytes.split_first_chunk::<16>() else {
                return;
            };
            let Some(([shape, high, low, given], rest)) = rest.split_first_chunk::<4>() else {
                return;
            };
            let (given, rest) = rest.split_at(usize::from(*given).min(rest.len()));
            bytes = rest;
            let room = if shape & 1 == 0 {
                0
            } else {
                1 << ((shape >> 3) % 18)
            };
            let len = if shape & 2 == 0 {
                0
            } else {
                usize::from(u16::from_be_bytes([*high, *low]))
            };
            let out = if given.is_empty() {
                vec![0; len]
            } else {
                given.iter().copied().cycle().take(len).collect()
            };
            // The first command of a nexus only hears of power on; half of them come second.
            if shape & 4 != 0 {
                disk.hear_news().await;
            }
            disk.run(cdb, room, out).await;
        }
    });
}

fn locked_directory() -> Arc<Directory> {
    let chap = ChapPolicy::Required {
        accepted: vec![ChapCredential {
            name: "alice".into(),
            secret: Secret::new(b"alice's long secret".to_vec()),
        }],
        own: None,
    };
    let target = Target {
        name: name(TARGET),
        alias: None,
        tpgt: Tpgt(1),
        access: Access::Everyone,
        chap,
        parameters: Parameters::default(),
        device: TargetDevice::new(name(TARGET), &[Tpgt(1)]),
    };
    Arc::new(Directory {
        targets: BTreeMap::from([(target.name.clone(), Arc::new(target))]),
        advertised: Vec::new(),
        portals: Vec::new(),
        discovery_chap: ChapPolicy::Open,
        discovery_parameters: Parameters::default(),
        ..Directory::default()
    })
}

/// More would only make an input slow.
const MAXIMUM_COMMANDS: usize = 16;

fn template() -> Request {
    Request::Login(LoginRequest {
        transit: false,
        continues: false,
        current_stage: iscsi_proto::pdu::LoginStage::Security,
        next_stage: iscsi_proto::pdu::LoginStage::Security,
        version_max: 0,
        version_min: 0,
        isid: Isid([0x80, 0, 0, 0, 0, 1]),
        tsih: Tsih::NEW,
        itt: Itt(1),
        cid: Cid(0),
        cmd_sn: Sn(1),
        exp_stat_sn: Sn(0),
    })
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

fn name(text: &str) -> IscsiName {
    text.parse().expect("a valid name")
}
