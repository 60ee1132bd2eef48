//! What an initiator has between its session and the RDMA link: PDUs of the session become iSER messages and opened
//! memory, and what the target put there comes back as Data-In. So a session speaks of the same things on both
//! transports, and is held to the same rules.

use std::collections::BTreeMap;

use iscsi_proto::pdu::{DataIn, Function, Request, Residual, Response};
use iscsi_proto::{Itt, Lun, Ttt};
use iser_transport::sim::{SimQueuePair, Weather};
use iser_transport::{CmHeader, Initiator, Message};

use super::pipe::{Pdu, Receiver, Sender, pipe};
use super::random::Random;

/// How an initiator's RDMA is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Make {
    pub(crate) weather: Weather,
    pub(crate) private_data: CmHeader,
    /// What it declares of its opened memory, if anything.
    pub(crate) solicited_only: Option<bool>,
    /// Work fails, once in so many times, as soon as the login is done.
    pub(crate) fails_one_in: u64,
}

impl Make {
    pub(crate) fn draw(random: &mut Random, may_break: bool) -> Self {
        let weather = Weather {
            delay_ms: random.pick(&[0, 1, 5, 30]),
            fails_one_in: 0,
            reads_max: random.between(1, 4) as usize,
        };
        Self {
            weather,
            private_data: CmHeader {
                no_zero_based_addresses: true,
                no_remote_invalidate: random.percent(30),
            },
            solicited_only: random.pick(&[None, Some(true), Some(false)]),
            fails_one_in: if may_break && random.percent(10) { 200 } else { 0 },
        }
    }
}

/// One session's half of iSER.
#[derive(Debug)]
struct Half {
    initiator: Initiator,
    fails_one_in: u64,
    /// Commands whose memory is open, by tag.
    open: BTreeMap<u32, Open>,
    /// Task management requests that were not answered, with the tags that they end.
    ending: BTreeMap<u32, Vec<u32>>,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    lun: Lun,
    room: usize,
}

/// Puts iSER under a session. Returns the session's ends of two pipes; the half lives until either end is dropped.
pub(crate) fn under_session(link: SimQueuePair, make: Make, random: &mut Random) -> (Sender, Receiver) {
    let (sender, mut from_session) = pipe(random.fork(), 0);
    let (mut to_session, receiver) = pipe(random.fork(), 0);
    let mut initiator = Initiator::new(link, RECEIVES);
    initiator.solicited_only = make.solicited_only.unwrap_or(true);
    let mut half = Half {
        initiator,
        fails_one_in: make.fails_one_in,
        open: BTreeMap::new(),
        ending: BTreeMap::new(),
    };
    tokio::spawn(async move {
        loop {
            let room = std::future::poll_fn(|cx| to_session.poll_room(cx));
            tokio::select! {
                biased;
                pdu = from_session.recv() => match pdu {
                    Some(pdu) => half.say(pdu),
                    None => break,
                },
                // A session that hears nothing keeps the target's messages waiting.
                message = async { room.await; half.initiator.message().await } => match message {
                    Some(message) => half.hear(message).into_iter().for_each(|pdu| to_session.send(pdu)),
                    None => break,
                },
            }
        }
    });
    (sender, receiver)
}

impl Half {
    fn say(&mut self, pdu: Pdu) {
        let Pdu {
            bhs, data, opened, ..
        } = pdu;
        match Request::decode(&bhs) {
            Ok(Request::ScsiCommand(command)) => {
                let opened = opened.unwrap_or_default();
                let open = Open {
                    lun: command.lun,
                    room: opened.room,
                };
                self.open.insert(command.itt.0, open);
                return self.initiator.command(bhs, &data, opened);
            }
            Ok(Request::TaskManagement(request)) => {
                let of_unit = self.open.iter().filter(|(_, open)| open.lun == request.lun);
                let ends = match request.function {
                    Function::AbortTask => vec![request.referenced_itt.0],
                    _ => of_unit.map(|(itt, _)| *itt).collect(),
                };
                self.ending.insert(request.itt.0, ends);
            }
            _ => {}
        }
        self.initiator.send(bhs, &data);
    }

    fn hear(&mut self, message: Message) -> Vec<Pdu> {
        let Message::Pdu { bhs, data, data_in } = message else {
            return Vec::new();
        };
        let mut pdus = Vec::new();
        match Response::decode(&bhs) {
            Ok(Response::Login(login)) if login.transit => {
                self.initiator.queue_pair().worsen(self.fails_one_in);
            }
            Ok(Response::ScsiResponse(response)) => {
                let room = self.open.remove(&response.itt.0).map_or(0, |open| open.room);
                let came = match response.residual {
                    Residual::Underflow(missing) => room.saturating_sub(missing as usize),
                    Residual::None | Residual::Overflow(_) => room,
                };
                let data = data_in.unwrap_or_default();
                if came > 0 {
                    pdus.push(all_data_in(response.itt, &response, data[..came].to_vec()));
                }
            }
            // Whatever still touched the memory of these would break the link.
            Ok(Response::TaskManagement(response)) => {
                for itt in self.ending.remove(&response.itt.0).unwrap_or_default() {
                    self.open.remove(&itt);
                    self.initiator.forget(itt);
                }
            }
            _ => {}
        }
        pdus.push(Pdu::new(bhs, data));
        pdus
    }
}

/// All that the target wrote, as if it had come in one piece.
fn all_data_in(itt: Itt, response: &iscsi_proto::pdu::ScsiResponse, data: Vec<u8>) -> Pdu {
    let header = Response::DataIn(DataIn {
        is_final: true,
        acknowledge: false,
        status: None,
        lun: Lun::ZERO,
        itt,
        ttt: Ttt::RESERVED,
        exp_cmd_sn: response.exp_cmd_sn,
        max_cmd_sn: response.max_cmd_sn,
        data_sn: 0,
        offset: 0,
    });
    Pdu::new(header.encode(), data)
}

/// More than a target ever sends without being asked.
const RECEIVES: usize = 256;
