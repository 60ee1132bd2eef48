//! What an initiator has between its session and the RDMA link: PDUs of the session become iSER messages and opened
//! memory, and what the target put there comes back as Data-In. So a session speaks of the same things on both
//! transports, and is held to the same rules.

use std::collections::BTreeMap;
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use iscsi_proto::pdu::{DataIn, Function, Request, Residual, Response, TaskManagementRequest};
use iscsi_proto::{Itt, Lun, Sn, Ttt};
use iser_transport::sim::{SimQueuePair, Weather, link};
use iser_transport::{CmHeader, Initiator, Message};

use super::ledger::Check;
use super::pipe::{Pdu, Receiver, Sender, pipe};
use super::random::Random;
use super::scene::Scene;
use super::tally::Event;

/// How an initiator's RDMA is made, for all connections of a session.
#[derive(Clone, Debug)]
pub(crate) struct Make {
    /// RDMA READs that each end serves at once.
    reads_max: usize,
    pub(crate) private_data: CmHeader,
    /// What it declares of its opened memory, if anything.
    pub(crate) solicited_only: Option<bool>,
    /// Work fails, once in so many times, as soon as the login is done.
    pub(crate) fails_one_in: u64,
    memory: SharedMemory,
}

impl Make {
    pub(crate) fn draw(random: &mut Random, may_break: bool) -> Self {
        Self {
            reads_max: random.between(1, 4) as usize,
            private_data: CmHeader {
                no_zero_based_addresses: true,
                no_remote_invalidate: random.percent(30),
            },
            solicited_only: random.pick(&[None, Some(true), Some(false)]),
            fails_one_in: if may_break && random.percent(10) { 200 } else { 0 },
            memory: SharedMemory::default(),
        }
    }

    /// The target's end of a new link, and the initiator's. One may be far slower than another of its session.
    pub(crate) fn link(&self, random: &mut Random) -> (SimQueuePair, SimQueuePair) {
        let weather = Weather {
            delay_ms: random.pick(&[0, 1, 5, 30]),
            fails_one_in: 0,
            reads_max: self.reads_max,
        };
        link(random.next(), weather)
    }
}

/// The initiator's half of iSER on one connection.
#[derive(Debug)]
struct Half {
    scene: Arc<Scene>,
    initiator: Arc<Mutex<Initiator>>,
    fails_one_in: u64,
    memory: SharedMemory,
    /// Task management requests that were not answered, by tag.
    managing: BTreeMap<u32, TaskManagementRequest>,
}

/// Memory that is open for the commands of a session, by tag. A task management request closes that of all
/// connections, whichever it went by.
#[derive(Clone, Default)]
struct SharedMemory(Arc<Mutex<BTreeMap<u32, Open>>>);

#[derive(Clone, Debug)]
struct Open {
    lun: Lun,
    cmd_sn: Sn,
    room: usize,
    /// Whose it is; gone with its connection.
    initiator: Weak<Mutex<Initiator>>,
}

impl Open {
    /// Whether an answer to this request is the last word on the command with this tag. Any other that has the tag, or
    /// came later, goes on.
    fn is_ended_by(&self, itt: u32, tmf: &TaskManagementRequest) -> bool {
        match tmf.function {
            Function::AbortTask => tmf.referenced_itt.0 == itt && tmf.ref_cmd_sn == self.cmd_sn,
            Function::AbortTaskSet | Function::ClearTaskSet | Function::LogicalUnitReset => {
                self.lun == tmf.lun && self.cmd_sn.precedes(tmf.cmd_sn)
            }
            _ => false,
        }
    }
}

impl SharedMemory {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, Open>> {
        self.0.lock().expect("plain data")
    }
}

impl fmt::Debug for SharedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("..")
    }
}

/// Puts iSER under a session. Returns the session's ends of two pipes; the half lives until either end is dropped.
pub(crate) fn under_session(
    scene: &Arc<Scene>,
    link: SimQueuePair,
    make: &Make,
    random: &mut Random,
) -> (Sender, Receiver) {
    let (sender, mut from_session) = pipe(random.fork(), 0);
    let (mut to_session, receiver) = pipe(random.fork(), 0);
    let mut initiator = Initiator::new(link, RECEIVES);
    initiator.solicited_only = make.solicited_only.unwrap_or(true);
    let mut half = Half {
        scene: Arc::clone(scene),
        initiator: Arc::new(Mutex::new(initiator)),
        fails_one_in: make.fails_one_in,
        memory: make.memory.clone(),
        managing: BTreeMap::new(),
    };
    tokio::spawn(async move {
        loop {
            let room = poll_fn(|cx| to_session.poll_room(cx));
            tokio::select! {
                biased;
                pdu = from_session.recv() => match pdu {
                    Some(pdu) => half.say(pdu),
                    None => break,
                },
                // A session that hears nothing keeps the target's messages waiting.
                message = async { room.await; half.message().await } => match message {
                    Some(message) => half.hear(message).into_iter().for_each(|pdu| to_session.send(pdu)),
                    None => break,
                },
            }
        }
        half.check_refusals();
    });
    (sender, receiver)
}

impl Half {
    fn initiator(&self) -> MutexGuard<'_, Initiator> {
        lock(&self.initiator)
    }

    /// The next message; others may close memory of this connection meanwhile.
    async fn message(&self) -> Option<Message> {
        poll_fn(|cx| self.initiator().poll_message(cx)).await
    }

    fn say(&mut self, pdu: Pdu) {
        let Pdu {
            bhs, data, opened, ..
        } = pdu;
        match Request::decode(&bhs) {
            Ok(Request::ScsiCommand(command)) => {
                let opened = opened.unwrap_or_default();
                let open = Open {
                    lun: command.lun,
                    cmd_sn: command.cmd_sn,
                    room: opened.room,
                    initiator: Arc::downgrade(&self.initiator),
                };
                self.memory.lock().insert(command.itt.0, open);
                return self.initiator().command(bhs, &data, opened);
            }
            Ok(Request::TaskManagement(request)) => {
                self.managing.insert(request.itt.0, request);
            }
            _ => {}
        }
        self.initiator().send(bhs, &data);
    }

    fn hear(&mut self, message: Message) -> Vec<Pdu> {
        let Message::Pdu { bhs, data, data_in } = message else {
            return Vec::new();
        };
        let mut pdus = Vec::new();
        match Response::decode(&bhs) {
            Ok(Response::Login(login)) if login.transit => {
                let fails_one_in = self.fails_one_in;
                self.initiator().queue_pair().worsen(fails_one_in);
            }
            Ok(Response::ScsiResponse(response)) => {
                let open = self.memory.lock().remove(&response.itt.0);
                let room = open.map_or(0, |open| open.room);
                let came = match response.residual {
                    Residual::Underflow(missing) => room.saturating_sub(missing as usize),
                    Residual::None | Residual::Overflow(_) => room,
                };
                let data = data_in.unwrap_or_default();
                if came > 0 {
                    pdus.push(all_data_in(response.itt, &response, data[..came].to_vec()));
                }
            }
            Ok(Response::TaskManagement(response)) => {
                if let Some(request) = self.managing.remove(&response.itt.0) {
                    self.close_memory(&request);
                }
            }
            _ => {}
        }
        pdus.push(Pdu::new(bhs, data));
        pdus
    }

    /// Whatever still touches the memory of these tasks breaks its link, and is noticed.
    fn close_memory(&self, request: &TaskManagementRequest) {
        let mut memory = self.memory.lock();
        let ended: Vec<u32> = memory
            .iter()
            .filter(|(itt, open)| open.is_ended_by(**itt, request))
            .map(|(itt, _)| *itt)
            .collect();
        let ended: Vec<_> = ended.iter().filter_map(|itt| memory.remove_entry(itt)).collect();
        drop(memory);
        for (itt, open) in ended {
            let Some(initiator) = open.initiator.upgrade() else {
                continue;
            };
            if !Arc::ptr_eq(&initiator, &self.initiator) {
                self.scene.count_event(Event::AbortedByAnother);
            }
            lock(&initiator).forget(itt);
        }
    }

    /// The connection is over.
    fn check_refusals(&self) {
        let refusals = self.initiator().queue_pair().refusals();
        self.scene.ledger.check(Check::OpenMemory, refusals == 0, || {
            "the target touched memory that was closed, or that it was never given".into()
        });
    }
}

fn lock(initiator: &Mutex<Initiator>) -> MutexGuard<'_, Initiator> {
    initiator.lock().expect("nothing panics while it is held")
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
