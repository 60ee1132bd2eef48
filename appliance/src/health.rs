//! `lunaport health`: a discovery login, as an initiator would do it, and a request for the targets.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::ExitCode;
use std::time::Duration;

use iscsi_proto::pdu::{LoginRequest, LoginStage, LoginStatus, Request, Response, TextRequest};
use iscsi_proto::{BHS_LEN, Cid, Frame, Isid, Itt, Lun, Sn, Tsih, Ttt, text};

use crate::address::{ISCSI_PORT, portals_from_environment, reachable};
use crate::cli::HealthArgs;
use crate::error::StartError;

/// Exit 0 and one line on success, an error that says what was wrong otherwise.
pub(crate) fn run(args: &HealthArgs) -> Result<ExitCode, StartError> {
    let portal = reachable(match args.portal {
        Some(portal) => portal,
        // What `serve` in the same container was given.
        None => match portals_from_environment()?
            .iter()
            .find(|portal| !portal.over_rdma)
        {
            Some(portal) => portal.address,
            None => SocketAddr::from((Ipv4Addr::LOCALHOST, ISCSI_PORT)),
        },
    });
    let targets =
        discover(portal).map_err(|error| StartError::option("health: portal", portal.to_string(), error))?;
    drop(writeln!(io::stdout(), "{portal} serves {}", targets.join(", ")));
    Ok(ExitCode::SUCCESS)
}

/// The target names a portal tells.
fn discover(portal: SocketAddr) -> Result<Vec<String>, String> {
    let mut socket =
        TcpStream::connect_timeout(&portal, PATIENCE).map_err(|error| format!("no answer: {error}"))?;
    let wire = |error: io::Error| format!("the conversation broke off: {error}");
    socket.set_read_timeout(Some(PATIENCE)).map_err(wire)?;
    socket.set_write_timeout(Some(PATIENCE)).map_err(wire)?;

    send(&mut socket, &Request::Login(login()), &pairs(LOGIN_KEYS)).map_err(wire)?;
    let (response, _) = receive(&mut socket).map_err(wire)?;
    let stat_sn = match response {
        Response::Login(login) if login.status != LoginStatus::Success => {
            return Err(format!("the login was refused: {:?}", login.status));
        }
        Response::Login(login) if login.transit && login.next_stage == LoginStage::FullFeature => {
            login.stat_sn
        }
        other => return Err(format!("unexpected answer to the login: {other:?}")),
    };
    let text = send_targets(&mut socket, stat_sn)?;
    let pairs = text::parse_pairs(&text).map_err(|error| error.to_string())?;
    Ok(pairs
        .into_iter()
        .filter(|pair| pair.key == "TargetName")
        .map(|pair| pair.value)
        .collect())
}

/// The whole answer to SendTargets, which a portal with many targets gives in pieces (RFC 7143 §11.10.4).
fn send_targets(socket: &mut TcpStream, login: Sn) -> Result<Vec<u8>, String> {
    let wire = |error: io::Error| format!("the conversation broke off: {error}");
    let mut request = TextRequest {
        immediate: true,
        is_final: true,
        continues: false,
        lun: Lun::ZERO,
        itt: Itt(2),
        ttt: Ttt::RESERVED,
        cmd_sn: Sn(1),
        exp_stat_sn: login.next(),
    };
    let mut asked = pairs(&[("SendTargets", "All")]);
    let mut text = Vec::new();
    while text.len() <= ANSWER_MAX {
        send(socket, &Request::Text(request.clone()), &asked).map_err(wire)?;
        match receive(socket).map_err(wire)? {
            (Response::Text(response), piece) => {
                text.extend(piece);
                if response.is_final {
                    return Ok(text);
                }
                (request.ttt, request.exp_stat_sn) = (response.ttt, response.stat_sn.next());
                asked.clear();
            }
            (other, _) => return Err(format!("unexpected answer to SendTargets: {other:?}")),
        }
    }
    Err(format!("the list of targets is longer than {ANSWER_MAX} bytes"))
}

fn login() -> LoginRequest {
    LoginRequest {
        transit: true,
        continues: false,
        current_stage: LoginStage::Operational,
        next_stage: LoginStage::FullFeature,
        version_max: 0,
        version_min: 0,
        isid: Isid([0x80, 0, 0, 0, 0, 1]),
        tsih: Tsih::NEW,
        itt: Itt(1),
        cid: Cid(1),
        cmd_sn: Sn(1),
        exp_stat_sn: Sn(0),
    }
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (key, value) in pairs {
        text::push_pair(&mut out, key, value);
    }
    out
}

fn send(socket: &mut TcpStream, request: &Request, data: &[u8]) -> io::Result<()> {
    let frame = Frame {
        ahs_len: 0,
        data_len: data.len(),
    };
    let mut bhs = request.encode();
    frame.stamp(&mut bhs);
    let mut bytes = bhs.to_vec();
    bytes.extend(data);
    bytes.resize(bytes.len() + frame.padding(), 0);
    socket.write_all(&bytes)
}

fn receive(socket: &mut TcpStream) -> io::Result<(Response, Vec<u8>)> {
    let mut bhs = [0; BHS_LEN];
    socket.read_exact(&mut bhs)?;
    let frame = Frame::of(&bhs);
    let mut data = vec![0; frame.ahs_len + frame.data_len + frame.padding()];
    socket.read_exact(&mut data)?;
    let response = Response::decode(&bhs)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
    data.truncate(frame.ahs_len + frame.data_len);
    Ok((response, data.split_off(frame.ahs_len)))
}

const LOGIN_KEYS: &[(&str, &str)] = &[
    ("InitiatorName", "iqn.2026-11.org.lunaport:health"),
    ("SessionType", "Discovery"),
];
/// Room for a hundred thousand targets, and an end for a portal that never comes to one.
const ANSWER_MAX: usize = 32 << 20;
const PATIENCE: Duration = Duration::from_secs(5);
