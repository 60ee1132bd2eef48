//! What the standards' tables say, as small as it can be said: no nexus, no list, no bytes, keys and numbers only. Shares
//! nothing with the code that it judges.

use super::Ended::{self, Check, Conflict, Good};

/// A unit and the nexuses 0, 1, … that use it.
#[derive(Clone, Debug)]
pub(super) struct Model {
    pub(super) generation: u32,
    /// By nexus; 0 is not registered.
    pub(super) keys: Vec<u64>,
    /// Type, and who made it.
    pub(super) held: Option<(u8, usize)>,
    pub(super) legacy: Option<usize>,
    pub(super) aptpl: bool,
    /// What each nexus has still to be told.
    pub(super) news: Vec<Vec<Ended>>,
}

/// PERSISTENT RESERVE OUT.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prout {
    pub(super) action: u8,
    pub(super) kind: u8,
    pub(super) key: u64,
    pub(super) action_key: u64,
    pub(super) aptpl: bool,
    /// Another nexus: of SPEC_I_PT, or where REGISTER AND MOVE goes.
    pub(super) other: Option<usize>,
    /// UNREG.
    pub(super) unregister: bool,
}

impl Model {
    pub(super) fn new(nexuses: usize) -> Self {
        Self {
            generation: 0,
            keys: vec![0; nexuses],
            held: None,
            legacy: None,
            aptpl: false,
            news: vec![Vec::new(); nexuses],
        }
    }

    pub(super) fn is_holder(&self, n: usize) -> bool {
        match self.held {
            None => false,
            Some((7 | 8, _)) => self.keys[n] != 0,
            Some((_, holder)) => holder == n,
        }
    }

    fn may_do_all(&self, n: usize) -> bool {
        self.is_holder(n) || (matches!(self.held, Some((5..=8, _))) && self.keys[n] != 0)
    }

    /// A command that does nothing to reservations.
    pub(super) fn command(&mut self, n: usize, reads: bool, writes: bool) -> Ended {
        let exclusive = matches!(self.held, Some((3 | 6 | 8, _)));
        let shut_out = self.held.is_some() && !self.may_do_all(n) && (writes || (reads && exclusive));
        if shut_out || self.is_anothers(n) {
            return Conflict;
        }
        self.next_news(n).unwrap_or(Good)
    }

    pub(super) fn reserve_6(&mut self, n: usize) -> Ended {
        if let Some(news) = self.next_news(n) {
            return news;
        }
        if self.held.is_some() && self.may_do_all(n) {
            return Good;
        }
        if self.keys.iter().any(|key| *key != 0) || self.is_anothers(n) {
            return Conflict;
        }
        self.legacy = Some(n);
        Good
    }

    pub(super) fn release_6(&mut self, n: usize) -> Ended {
        if let Some(news) = self.next_news(n) {
            return news;
        }
        if self.held.is_some() && self.may_do_all(n) {
            return Good;
        }
        if self.keys.iter().any(|key| *key != 0) {
            return Conflict;
        }
        if self.legacy == Some(n) {
            self.legacy = None;
        }
        Good
    }

    pub(super) fn prout(&mut self, n: usize, request: Prout) -> Ended {
        if self.is_anothers(n) {
            return Conflict;
        }
        if let Some(news) = self.next_news(n) {
            return news;
        }
        let Prout {
            action,
            kind,
            key,
            action_key,
            ..
        } = request;
        if matches!(action, 1 | 2 | 4 | 5 | 8) && matches!(kind, 0 | 2 | 4 | 9..) {
            return Check(0x24, 0x00);
        }
        if request.other.is_some() && !matches!(action, 0 | 7) {
            return Check(0x26, 0x00);
        }
        if self.legacy.is_some() {
            return Conflict;
        }
        if action == 8 {
            return Check(0x26, 0x04);
        }
        if matches!(action, 0 | 6) {
            return self.register(n, request);
        }
        if self.keys[n] == 0 || self.keys[n] != key {
            return Conflict;
        }
        match action {
            1 => self.reserve(n, kind),
            2 => self.release(n, kind),
            3 => {
                self.tell(n, Check(0x2a, 0x03));
                self.keys.fill(0);
                self.held = None;
                self.counted()
            }
            4 | 5 => self.preempt(n, action_key, kind),
            _ => self.move_to(n, request),
        }
    }

    /// Tables 67 and 68 of SPC-4.
    fn register(&mut self, n: usize, request: Prout) -> Ended {
        // An unregistered nexus has key 0 here, and has to say 0.
        if request.action == 0 && request.key != self.keys[n] {
            return Conflict;
        }
        if self.keys[n] != 0 && request.other.is_some() {
            return Check(0x26, 0x00);
        }
        if self.keys[n] == 0 && request.action_key == 0 {
            return Good;
        }
        if request.other.is_some_and(|other| self.keys[other] != 0) {
            return Check(0x26, 0x00);
        }
        self.keys[n] = request.action_key;
        if let Some(other) = request.other {
            self.keys[other] = request.action_key;
        }
        if request.action_key == 0 {
            match self.held {
                Some((5 | 6, holder)) if holder == n => {
                    self.held = None;
                    self.tell(n, Check(0x2a, 0x04));
                }
                Some((1 | 3, holder)) if holder == n => self.held = None,
                Some((7 | 8, _)) if self.keys.iter().all(|key| *key == 0) => self.held = None,
                _ => {}
            }
        }
        self.aptpl = request.aptpl;
        self.counted()
    }

    fn reserve(&mut self, n: usize, kind: u8) -> Ended {
        match self.held {
            None => self.held = Some((kind, n)),
            Some((old, _)) if old == kind && self.is_holder(n) => {}
            Some(_) => return Conflict,
        }
        Good
    }

    fn release(&mut self, n: usize, kind: u8) -> Ended {
        match self.held {
            Some(_) if !self.is_holder(n) => {}
            Some((old, _)) if old != kind => return Check(0x26, 0x04),
            Some(_) => {
                self.held = None;
                if kind >= 5 {
                    self.tell(n, Check(0x2a, 0x04));
                }
            }
            None => {}
        }
        Good
    }

    /// Table 72 of SPC-4.
    fn preempt(&mut self, n: usize, victim: u64, kind: u8) -> Ended {
        let takes_over = match self.held {
            Some((7 | 8, _)) => victim == 0,
            Some(_) if victim == 0 => return Check(0x26, 0x00),
            Some((_, holder)) => self.keys[holder] == victim,
            None => false,
        };
        let everybody = takes_over && victim == 0;
        let goes = |m: usize, key: u64| key != 0 && (everybody || key == victim) && !(takes_over && m == n);
        let losers: Vec<usize> = (0..self.keys.len()).filter(|m| goes(*m, self.keys[*m])).collect();
        if !takes_over && losers.is_empty() {
            return Conflict;
        }
        for loser in losers {
            self.keys[loser] = 0;
            if loser != n {
                self.tell_one(loser, Check(0x2a, 0x05));
            }
        }
        if takes_over {
            if self.held.is_some_and(|(old, _)| old != kind) {
                self.tell(n, Check(0x2a, 0x04));
            }
            self.held = Some((kind, n));
        } else if self.keys.iter().all(|key| *key == 0) {
            self.held = None;
        }
        self.counted()
    }

    /// Table 70 of SPC-4.
    fn move_to(&mut self, n: usize, request: Prout) -> Ended {
        let to = request.other.expect("a move has a destination");
        match self.held {
            None => return Check(0x24, 0x00),
            Some((kind, holder)) if kind < 7 && holder == n => {
                if request.action_key == 0 || to == n {
                    return Check(0x26, 0x00);
                }
                self.held = Some((kind, to));
            }
            Some(_) => return Conflict,
        }
        self.keys[to] = request.action_key;
        if request.unregister {
            self.keys[n] = 0;
        }
        self.aptpl = request.aptpl;
        self.counted()
    }

    pub(super) fn leave(&mut self, n: usize) {
        if self.legacy == Some(n) {
            self.legacy = None;
        }
    }

    pub(super) fn lose_power(&mut self) {
        if !self.aptpl || self.keys.iter().all(|key| *key == 0) {
            *self = Self::new(self.keys.len());
        }
        self.generation = 0;
        self.legacy = None;
        self.news.iter_mut().for_each(Vec::clear);
    }

    fn is_anothers(&self, n: usize) -> bool {
        self.legacy.is_some_and(|holder| holder != n)
    }

    fn next_news(&mut self, n: usize) -> Option<Ended> {
        (!self.news[n].is_empty()).then(|| self.news[n].remove(0))
    }

    /// Every other registrant.
    fn tell(&mut self, n: usize, news: Ended) {
        for m in 0..self.keys.len() {
            if m != n && self.keys[m] != 0 {
                self.tell_one(m, news);
            }
        }
    }

    fn tell_one(&mut self, m: usize, news: Ended) {
        if !self.news[m].contains(&news) {
            self.news[m].push(news);
        }
    }

    fn counted(&mut self) -> Ended {
        self.generation += 1;
        Good
    }
}
