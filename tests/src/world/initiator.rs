//! What initiators do: step after step as chance has it, over as many sessions as it takes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use iscsi_proto::pdu::{Function, LogoutReason};
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use super::ledger::Check;
use super::login::{join, log_in};
use super::plan::{CAPACITY, Command, Step};
use super::random::Random;
use super::scene::Scene;
use super::session::Session;

/// Why a session is over.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum End {
    /// All steps are done.
    Done,
    /// The connection is gone, or is left behind; another login follows.
    Again,
    /// As `Again`, but the old connection stays open until the next login.
    Beside,
}

/// Does `steps` steps, then leaves in peace.
pub(crate) async fn act(scene: Arc<Scene>, id: u8, mut random: Random, mut steps: usize) {
    let mut beside: Option<Session> = None;
    let mut refusals = 0;
    loop {
        let Some(mut session) = log_in(&scene, id, &mut random).await else {
            refusals += 1;
            if refusals == 3 {
                break;
            }
            continue;
        };
        drop(beside.take());
        let end = live(&mut session, &mut random, &mut steps).await;
        session.abandon();
        match end {
            End::Done => break,
            End::Again => {}
            End::Beside => beside = Some(session),
        }
    }
    scene.busy.fetch_sub(1, Ordering::Relaxed);
}

/// Reads whole logical units, as a witness of what is there.
pub(crate) async fn read_all(scene: &Arc<Scene>, id: u8, random: &mut Random) {
    let Some(mut session) = log_in(scene, id, random).await else {
        return;
    };
    for unit in 0..scene.stores.len() {
        // The first command is told what happened to the unit.
        let flush = [Command::flush()].into_iter();
        let reads = (0..CAPACITY).step_by(PIECE as usize);
        for command in flush.chain(reads.map(|lba| Command::read(lba, PIECE, false))) {
            session.command(unit, command);
            if !settle(&mut session).await {
                // It is in the ledger. Nothing more comes, however long one waits.
                return session.abandon();
            }
        }
    }
    session.log_out();
    depart(&mut session).await;
    session.abandon();
}

async fn live(session: &mut Session, random: &mut Random, steps: &mut usize) -> End {
    // Everyone's first commands are told of the power on; then work begins.
    let mut next = Instant::now() + random.millis(0, 20);
    while *steps > 0 {
        tokio::select! {
            biased;
            (leg, pdu) = session.recv() => match pdu {
                Some(pdu) => session.heard(leg, &pdu),
                None => if let Some(end) = closed(session, leg).await {
                    return end;
                }
            },
            () = sleep_until(next) => {
                *steps -= 1;
                next = Instant::now() + pause(random);
                session.overdue(false);
                match step(session, random).await {
                    None => {}
                    Some(end) => return end,
                }
            }
        }
        if session.has_fallen {
            return fallen(session, random).await;
        }
        if session.is_asked_to_leave {
            session.log_out();
            depart(session).await;
            return End::Again;
        }
    }
    // What is not answered now is not the wire's fault.
    session.legs.iter_mut().for_each(|leg| leg.calm(true));
    session.contest();
    let is_settled = settle(session).await;
    session.legs.iter_mut().for_each(|leg| leg.calm(false));
    if !is_settled {
        return End::Done;
    }
    // With nothing outstanding the window must be as wide as ever.
    session.ping();
    if settle(session).await {
        if !session.terms.is_lossy {
            session.check_window();
        }
        // Not everyone says goodbye.
        if random.percent(75) {
            session.log_out();
            depart(session).await;
        }
    }
    End::Done
}

/// A connection has ended. How the session ends, unless it is one that we had asked the target to close, or can go on
/// without it.
async fn closed(session: &mut Session, cid: u16) -> Option<End> {
    let leg = session.leg(cid);
    let (asked, is_spoiled) = leg.map_or((false, false), |leg| (leg.is_closing, leg.is_spoiled));
    session.forget_leg(cid);
    if session.is_ordered() {
        return Some(End::Again);
    }
    if is_spoiled && session.reassigns() && !asked && session.partings.is_empty() {
        let mut random = session.random.fork();
        return take_up(session, cid, &mut random).await;
    }
    let is_parting = session.partings.values().any(|parting| parting.cid == cid);
    if is_spoiled || (session.falls() && (!asked || is_parting)) {
        return Some(End::Again);
    }
    if asked && session.recovers() {
        // The answer was lost, and cannot come again.
        session.closed_unanswered(cid);
    }
    if !asked && !session.terms.breaks {
        let detail = "the target closed a connection that did nothing wrong";
        session.violated(Check::Liveness, detail);
    }
    (!asked).then_some(End::Again)
}

/// The session is beyond repair: another one begins, sooner or later. The target has to notice by itself what is left.
async fn fallen(session: &mut Session, random: &mut Random) -> End {
    match random.below(10) {
        0 => fall_silent(session).await,
        1..4 => End::Beside,
        _ => End::Again,
    }
}

fn pause(random: &mut Random) -> Duration {
    match random.below(100) {
        0..60 => random.millis(0, 2),
        60..95 => random.millis(1, 40),
        _ => random.millis(100, 2500),
    }
}

/// Does one step; how the session ends, if it does.
async fn step(session: &mut Session, random: &mut Random) -> Option<End> {
    let unit = random.below(session.scene.stores.len() as u64) as usize;
    session.ghosts.clear();
    match Step::draw(random) {
        Step::Command if session.moves_by_several() && random.percent(10) => {
            abort_by_another(session, unit, random).await
        }
        Step::Command if session.may_send() => {
            let stamp = session.scene.stamp();
            let now = session.scene.tick();
            let command = {
                let mut model = session.scene.model(unit);
                Command::draw(random, stamp, |block| model.likely(block, now))
            };
            session.command(unit, command);
            None
        }
        Step::Manage(function) => {
            session.manage(function, unit);
            // Often somebody else does the same, or writes on at once.
            if random.percent(30) && function == Function::AbortTask {
                session.manage(function, unit);
            }
            None
        }
        Step::Ping if session.may_send() => {
            session.ping();
            None
        }
        Step::Ask if session.may_send() => {
            session.ask();
            None
        }
        Step::Logout if session.may_send() => {
            session.log_out();
            depart(session).await;
            Some(End::Again)
        }
        Step::Join => match session.vacant_cid() {
            Some(cid) if !join(session, cid, random).await => Some(End::Again),
            Some(_) | None => None,
        },
        Step::LoseOne => {
            if let Some((lost, by)) = two_legs(session, random) {
                session.lose_leg(lost);
                if session.reassigns() && random.percent(30) {
                    return take_up(session, lost, random).await;
                }
                let reason = if session.reassigns() && random.percent(80) {
                    LogoutReason::RemoveConnectionForRecovery
                } else {
                    LogoutReason::CloseConnection
                };
                session.part(by, reason, lost);
            }
            None
        }
        Step::CloseOne => {
            if let Some((closed, other)) = two_legs(session, random) {
                let by = random.pick(&[closed, other]);
                session.part(by, LogoutReason::CloseConnection, closed);
            }
            None
        }
        // The window is shut just now.
        Step::Ask | Step::Command | Step::Ping | Step::Logout => None,
        Step::Reinstate => Some(End::Beside),
        Step::Lose if session.reassigns() && session.partings.is_empty() && random.percent(80) => {
            let lost: Vec<u16> = session.legs.iter().map(|leg| leg.cid).collect();
            lost.iter().for_each(|cid| session.lose_leg(*cid));
            let mut end = None;
            for cid in lost {
                end = end.or(take_up(session, cid, random).await);
            }
            end
        }
        Step::Lose => Some(End::Again),
        Step::FallSilent => Some(fall_silent(session).await),
    }
}

/// Writes so much that the target has to fetch some of it, and soon aborts that by another connection. Nothing else is
/// outstanding: the target has no acknowledgement to wait for, only the end of its own work.
async fn abort_by_another(session: &mut Session, unit: usize, random: &mut Random) -> Option<End> {
    if !settle(session).await {
        return Some(End::Again);
    }
    let (of, by) = two_legs(session, random).filter(|_| session.may_send())?;
    let (blocks, stamp) = (random.between(129, 600), session.scene.stamp());
    let lba = random.below(CAPACITY - blocks + 1);
    let itt = session.command_on(of, unit, Command::write(lba, blocks, stamp, false));
    sleep(random.millis(0, 60)).await;
    session.manage_on(by, Function::AbortTask, unit, vec![itt]);
    None
}

/// Opens a connection in the place of one that broke, and goes on with its tasks.
async fn take_up(session: &mut Session, cid: u16, random: &mut Random) -> Option<End> {
    if !join(session, cid, random).await {
        return Some(End::Again);
    }
    session.leg_is_lost(cid);
    None
}

/// Two different connections that stay as they are, if there are so many.
fn two_legs(session: &Session, random: &mut Random) -> Option<(u16, u16)> {
    let open = session.legs.iter().filter(|leg| !leg.is_closing);
    let mut cids: Vec<u16> = open.map(|leg| leg.cid).collect();
    if cids.len() < 2 || !session.partings.is_empty() {
        return None;
    }
    let first = cids.remove(random.below(cids.len() as u64) as usize);
    Some((first, random.pick(&cids)))
}

/// Hears answers until nothing is outstanding; `false` when the connection is gone.
async fn settle(session: &mut Session) -> bool {
    while !session.is_idle() {
        match timeout(Duration::from_millis(500), session.recv()).await {
            Ok((leg, Some(pdu))) => session.heard(leg, &pdu),
            Ok((leg, None)) if closed(session, leg).await.is_some() => return false,
            Ok((_, None)) => {}
            Err(_) => session.overdue(true),
        }
        if session.has_fallen {
            return false;
        }
    }
    true
}

/// Hears what is said until the logout is answered and the connection closed.
async fn depart(session: &mut Session) {
    let patience = if session.recovers() { 30 } else { 4 };
    let deadline = Instant::now() + Duration::from_secs(patience);
    // Whatever else is heard: a target whose pings are answered talks on and on.
    let mut again = Instant::now() + LOG_OUT_AGAIN;
    while !session.legs.is_empty() && !session.has_fallen {
        match timeout_at(again, session.recv()).await {
            Ok((leg, Some(pdu))) => session.heard(leg, &pdu),
            // The last words on one connection may come behind the end of another.
            Ok((leg, None)) => session.legs.retain(|other| other.cid != leg),
            Err(_) if Instant::now() < deadline => {
                again += LOG_OUT_AGAIN;
                if session.recovers() {
                    session.log_out_again();
                }
            }
            Err(_) if session.falls() => return,
            Err(_) => {
                let detail = "a logout is not answered, or the connection stays open";
                session.scene.ledger.violated(Check::Liveness, detail);
                return;
            }
        }
    }
    let is_excused = session.recovers() || session.terms.breaks || session.falls() || session.is_ordered();
    if !session.logged_out && !is_excused {
        let detail = "a connection is closed before its logout is answered";
        session.violated(Check::Liveness, detail);
    }
}

/// Says and hears nothing until the target must have noticed.
async fn fall_silent(session: &mut Session) -> End {
    session
        .scene
        .ledger
        .note(format_args!("i{} falls silent", session.id));
    sleep(SILENCE).await;
    let tsih = session.terms.tsih;
    if session.scene.node.sessions().iter().any(|view| view.tsih == tsih) {
        let detail = format!(
            "session {} of a silent initiator is alive after {SILENCE:?}",
            tsih.0
        );
        session.scene.ledger.violated(Check::NoSessionLeft, detail);
    }
    End::Again
}

/// After this time a logout that may have been lost is said again.
const LOG_OUT_AGAIN: Duration = Duration::from_secs(1);
/// Longer than all of the target's patience together.
const SILENCE: Duration = Duration::from_secs(45);
/// Blocks of one read of the witness.
const PIECE: u64 = 128;
