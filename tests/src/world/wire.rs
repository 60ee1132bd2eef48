//! What happens to PDUs on their way between an initiator and the target: some are lost, some are damaged, some are
//! overtaken by the one behind them. On TCP that happens to no PDU of an honest peer; here it stands for everything that
//! goes wrong between two ends, middle boxes included.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use iscsi_proto::pdu::{Request, Response};

use super::pipe::{Damage, Pdu, Receiver, Sender};
use super::random::Random;
use super::scene::Scene;
use super::tally::Mishap;

/// Both directions of one connection.
#[derive(Debug)]
pub(crate) struct Wire {
    scene: Arc<Scene>,
    random: Random,
    /// Of a thousand PDUs so many are lost, as many damaged, and as many overtaken.
    mischief: u64,
    /// Nothing happens for a while.
    is_calm: bool,
    to_target: Option<Pdu>,
    from_target: Option<Pdu>,
}

/// What became of a PDU, as far as its sender is told.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Fate {
    /// It will arrive as it was, or never.
    Sound,
    /// Its data will not arrive as they were.
    DataDamaged,
    /// Its header will not: that ends the connection.
    HeaderDamaged,
}

impl Wire {
    pub(crate) fn new(scene: Arc<Scene>, random: Random, mischief: u64) -> Self {
        Self {
            scene,
            random,
            mischief,
            is_calm: false,
            to_target: None,
            from_target: None,
        }
    }

    /// From now on nothing happens to PDUs, or as much as before.
    pub(crate) fn calm(&mut self, is_calm: bool) {
        self.is_calm = is_calm;
    }

    /// Puts a PDU on its way to the target.
    pub(crate) fn send(&mut self, sender: &mut Sender, mut pdu: Pdu) -> Fate {
        let name = name_of(&pdu);
        if self.strikes(name, Mishap::Lost) {
            return Fate::Sound;
        }
        let fate = self.damage(name, &mut pdu);
        let overtaken = self.to_target.take();
        if overtaken.is_none() && self.draws(name, Mishap::Overtaken) {
            self.to_target = Some(pdu);
            return fate;
        }
        sender.send(pdu);
        if let Some(overtaken) = overtaken {
            self.scene.count(name_of(&overtaken), Mishap::Overtaken);
            sender.send(overtaken);
        }
        fate
    }

    /// The next PDU that arrives from the target; `None` at the end of the stream. What it has overtaken is
    /// [`overtaken`](Self::overtaken).
    pub(crate) fn poll_recv(&mut self, receiver: &mut Receiver, cx: &mut Context<'_>) -> Poll<Option<Pdu>> {
        loop {
            let Some(mut pdu) = ready!(receiver.poll_recv(cx)) else {
                return Poll::Ready(self.from_target.take());
            };
            let name = Response::decode(&pdu.bhs).map_or("no PDU", |response| response.name());
            if self.strikes(name, Mishap::Lost) {
                continue;
            }
            if self.strikes(name, Mishap::Damaged) {
                pdu.damage = Damage::Header;
            }
            if self.from_target.is_none() && self.draws(name, Mishap::Overtaken) {
                self.from_target = Some(pdu);
                continue;
            }
            return Poll::Ready(Some(pdu));
        }
    }

    /// What was overtaken by the PDU that came last.
    pub(crate) fn overtaken(&mut self) -> Option<Pdu> {
        let pdu = self.from_target.take()?;
        let name = Response::decode(&pdu.bhs).map_or("no PDU", |response| response.name());
        self.scene.count(name, Mishap::Overtaken);
        Some(pdu)
    }

    fn damage(&mut self, name: &'static str, pdu: &mut Pdu) -> Fate {
        // Beside data a header is short, and a damaged one costs a connection.
        let header = self.random.percent(if pdu.data.is_empty() { 40 } else { 5 });
        if pdu.damage == Damage::Data {
            // By who sent it: that befalls sound wires as well.
            self.scene.count(name, Mishap::Damaged);
            return Fate::DataDamaged;
        }
        if (pdu.data.is_empty() && !header) || !self.strikes(name, Mishap::Damaged) {
            return Fate::Sound;
        }
        if name == "Login Request" {
            // Before there are digests, what arrives may be anything.
            pdu.bhs[0] = 0x3f;
            return Fate::HeaderDamaged;
        }
        if header {
            pdu.damage = Damage::Header;
            return Fate::HeaderDamaged;
        }
        pdu.damage = Damage::Data;
        Fate::DataDamaged
    }

    /// Whether a mishap befalls a PDU here and now.
    fn strikes(&mut self, name: &'static str, mishap: Mishap) -> bool {
        let strikes = self.draws(name, mishap);
        if strikes {
            self.scene.count(name, mishap);
        }
        strikes
    }

    /// Those that are rare are struck more often, and most often those behind which little else comes. Where they are said
    /// again when they are lost, they must get through sometimes.
    fn draws(&mut self, name: &str, mishap: Mishap) -> bool {
        let weight = match (name, mishap) {
            ("Logout Response", Mishap::Overtaken) if self.scene.level == 0 => 100,
            ("Logout Response", Mishap::Overtaken) => 30,
            ("Asynchronous Message", Mishap::Overtaken) => 16,
            (
                "Asynchronous Message"
                | "Logout Request"
                | "Logout Response"
                | "Text Request"
                | "Text Response",
                _,
            ) if self.scene.level == 0 => 10,
            (
                "SCSI Command" | "SCSI Response" | "SCSI Data-In" | "SCSI Data-Out" | "R2T" | "NOP-In"
                | "NOP-Out" | "SNACK Request",
                _,
            ) => 1,
            _ => 4,
        };
        !self.is_calm && self.mischief > 0 && self.random.below(1000) < self.mischief * weight
    }
}

/// What a request is. Only logins are damaged beyond recognition.
fn name_of(pdu: &Pdu) -> &'static str {
    Request::decode(&pdu.bhs).map_or("Login Request", |request| request.name())
}
