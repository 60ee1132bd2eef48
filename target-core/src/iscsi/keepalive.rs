//! Signs of life (RFC 7143 §11.18, §11.19): when to send a NOP-In, and when its answer has been missing too long.
//!
//! Pure bookkeeping. Any PDU of the initiator is a sign of life, so a busy connection is never asked. Nor is one of a
//! discovery session: the initiator may send nothing there but Text and Logout Requests (§4.3), so it could not answer.

use std::time::{Duration, Instant};

use iscsi_proto::Ttt;

/// What is known of the peer's life.
#[derive(Debug)]
pub(super) struct Keepalive {
    /// Silence after which we ask; zero never.
    interval: Duration,
    /// How long an answer may take.
    patience: Duration,
    last_heard: Instant,
    asked: Option<Asked>,
    last_ttt: u32,
    /// An initiator that cannot be asked is given up when it has been silent for so long.
    silence_max: Option<Duration>,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    ttt: Ttt,
    deadline: Instant,
}

impl Keepalive {
    pub(super) fn new(interval: Duration, patience: Duration, now: Instant) -> Self {
        Self {
            interval,
            patience,
            last_heard: now,
            asked: None,
            last_ttt: 0,
            silence_max: None,
        }
    }

    /// For a discovery session: it is not asked, and has several times as long as others have in all.
    pub(super) fn of_discovery(interval: Duration, patience: Duration, now: Instant) -> Self {
        Self {
            silence_max: (!interval.is_zero()).then(|| DISCOVERY_TIMES * (interval + patience)),
            ..Self::new(Duration::ZERO, patience, now)
        }
    }

    /// For how long it has been silent, if that is too long and it was not to be asked.
    pub(super) fn idle(&self, now: Instant) -> Option<Duration> {
        self.silence_max.filter(|max| self.last_heard + *max <= now)
    }

    /// How long an answer may take.
    pub(super) fn patience(&self) -> Duration {
        self.patience
    }

    /// The initiator sent something.
    pub(super) fn heard(&mut self, now: Instant) {
        self.last_heard = now;
        if let Some(asked) = &mut self.asked {
            asked.deadline = now + self.patience;
        }
    }

    /// A NOP-Out with this tag came.
    pub(super) fn answered(&mut self, ttt: Ttt) {
        self.asked = self.asked.filter(|asked| asked.ttt != ttt);
    }

    /// Whether the peer was asked and has been silent since, longer than it may.
    pub(super) fn is_overdue(&self, now: Instant) -> bool {
        self.asked.is_some_and(|asked| asked.deadline <= now)
    }

    /// The tag of a NOP-In to send now, if one is due. Never the reserved one.
    pub(super) fn ask(&mut self, now: Instant) -> Option<Ttt> {
        self.ask_at().filter(|due| *due <= now)?;
        Some(self.ask_now(now))
    }

    /// The tag of a NOP-In to send now, whether or not one is due. The last question is the one that counts.
    pub(super) fn ask_now(&mut self, now: Instant) -> Ttt {
        self.last_ttt = self.last_ttt.wrapping_add(1) & 0x7fff_ffff;
        let ttt = Ttt(self.last_ttt);
        self.asked = Some(Asked {
            ttt,
            deadline: now + self.patience,
        });
        ttt
    }

    /// When something is due.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let asked = self.asked.map(|asked| asked.deadline).or_else(|| self.ask_at());
        let idle = self.silence_max.map(|max| self.last_heard + max);
        asked.into_iter().chain(idle).min()
    }

    fn ask_at(&self) -> Option<Instant> {
        let wanted = !self.interval.is_zero() && self.asked.is_none();
        wanted.then(|| self.last_heard + self.interval)
    }
}

/// A host that goes through the names of thousands of targets says nothing for a while.
const DISCOVERY_TIMES: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn silence_is_asked_about_and_ends_in_a_verdict() {
        let begin = Instant::now();
        let mut keepalive = Keepalive::new(SECOND * 15, SECOND * 5, begin);
        assert_eq!(keepalive.ask(begin + SECOND * 14), None);
        assert_eq!(keepalive.ask(begin + SECOND * 15), Some(Ttt(1)));
        assert_eq!(keepalive.ask(begin + SECOND * 16), None, "one question at a time");
        assert!(!keepalive.is_overdue(begin + SECOND * 19));
        assert!(keepalive.is_overdue(begin + SECOND * 20));
    }

    #[test]
    fn only_the_right_tag_answers_but_any_pdu_is_a_sign_of_life() {
        let begin = Instant::now();
        let mut keepalive = Keepalive::new(SECOND * 15, SECOND * 5, begin);
        let ttt = keepalive.ask(begin + SECOND * 15).unwrap();
        keepalive.answered(Ttt::RESERVED);
        keepalive.heard(begin + SECOND * 18);
        assert!(!keepalive.is_overdue(begin + SECOND * 20));
        keepalive.answered(ttt);
        assert!(!keepalive.is_overdue(begin + SECOND * 60));
        assert_eq!(keepalive.deadline(), Some(begin + SECOND * 33));
    }

    #[test]
    fn an_interval_of_zero_never_asks() {
        let begin = Instant::now();
        let mut keepalive = Keepalive::new(Duration::ZERO, SECOND, begin);
        assert_eq!(
            (keepalive.deadline(), keepalive.ask(begin + SECOND * 3600)),
            (None, None)
        );
    }
    #[test]
    fn discovery_is_never_asked_and_given_up_when_it_is_idle_for_long() {
        let begin = Instant::now();
        let mut keepalive = Keepalive::of_discovery(SECOND * 15, SECOND * 15, begin);
        assert_eq!(keepalive.ask(begin + SECOND * 100), None);
        keepalive.heard(begin + SECOND * 100);
        assert_eq!(keepalive.deadline(), Some(begin + SECOND * 220));
        assert_eq!(keepalive.idle(begin + SECOND * 219), None);
        assert_eq!(keepalive.idle(begin + SECOND * 220), Some(SECOND * 120));
        let forever = Keepalive::of_discovery(Duration::ZERO, SECOND, begin);
        assert_eq!(
            (forever.deadline(), forever.idle(begin + SECOND * 3600)),
            (None, None)
        );
    }
}
