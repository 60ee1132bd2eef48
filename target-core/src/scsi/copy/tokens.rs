//! What the copies of all units of a device share: the table of tokens, and the places for copies that move data.
//!
//! A token dies of disuse, of a write to its blocks, by DEL_TKN, or for want of room. The table remembers for a while
//! of what: the next use is told. Whoever has the bytes may use a token, by whatever nexus and unit of the device it
//! came, as far as the nexus can reach the unit that the token is of.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::limits::{BACKGROUND_COPIES, CONCURRENT_COPIES, MAXIMUM_TOKENS};
use super::rod::Rod;
use super::token::{Token, TokenKind};
use crate::scsi::{Failure, LogicalUnit, Sense};

/// See the top of the file.
#[derive(Debug)]
pub(crate) struct CopyService {
    entropy: OnceLock<fn(&mut [u8])>,
    /// At most [`MAXIMUM_TOKENS`].
    tokens: Mutex<Vec<Entry>>,
    places: Arc<Semaphore>,
    background: Arc<Semaphore>,
}

#[derive(Debug)]
struct Entry {
    token: Token,
    life: Life,
    used: Instant,
}

#[derive(Debug)]
enum Life {
    Alive {
        rod: Arc<Rod>,
        patience: Duration,
    },
    /// The sense tells of what it died.
    Dead(Sense),
}

impl Default for CopyService {
    fn default() -> Self {
        Self {
            entropy: OnceLock::new(),
            tokens: Mutex::default(),
            places: Arc::new(Semaphore::new(CONCURRENT_COPIES.into())),
            background: Arc::new(Semaphore::new(BACKGROUND_COPIES.into())),
        }
    }
}

impl CopyService {
    /// Where random bytes come from; the first source stays.
    pub(crate) fn seed(&self, entropy: fn(&mut [u8])) {
        self.entropy.get_or_init(|| entropy);
    }

    /// Places of copies that move data.
    pub(super) const fn places(&self) -> &Arc<Semaphore> {
        &self.places
    }

    /// Leave for a copy to go on behind its status, if not too many do.
    pub(super) fn background(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.background).try_acquire_owned().ok()
    }

    /// Makes a token for `rod` of `unit`, which lives as long as no pause between its uses exceeds `patience`.
    pub(super) fn make(
        &self,
        unit: &LogicalUnit,
        rod: &Arc<Rod>,
        patience: Duration,
    ) -> Result<Token, Failure> {
        let entropy = self
            .entropy
            .get()
            .ok_or(Sense::INSUFFICIENT_RESOURCES_TO_CREATE_ROD_TOKEN)?;
        let token = Token::new(unit, rod.bytes(), *entropy);
        let mut tokens = self.tokens();
        bury(&mut tokens);
        if tokens.len() >= MAXIMUM_TOKENS {
            let oldest = (0..tokens.len()).min_by_key(|at| (tokens[*at].life.is_alive(), tokens[*at].used));
            tokens.swap_remove(oldest.expect("a full table has entries"));
        }
        tokens.push(Entry {
            token,
            life: Life::Alive {
                rod: Arc::clone(rod),
                patience,
            },
            used: Instant::now(),
        });
        Ok(token)
    }

    /// What a token stands for, `None` for zeroes without end. Counts as a use.
    pub(super) fn open(&self, token: &Token) -> Result<Option<Arc<Rod>>, Failure> {
        let TokenKind::Ours(identifier) = token.kind()? else {
            return Ok(None);
        };
        let mut tokens = self.tokens();
        bury(&mut tokens);
        let entry = tokens
            .iter_mut()
            .find(|entry| entry.token.kind().ok() == Some(TokenKind::Ours(identifier)))
            .ok_or(Sense::TOKEN_UNKNOWN)?;
        if !entry.token.is(token) {
            return Err(Sense::TOKEN_CORRUPT.into());
        }
        match &entry.life {
            Life::Alive { rod, .. } => {
                entry.used = Instant::now();
                Ok(Some(Arc::clone(rod)))
            }
            Life::Dead(cause) => Err((*cause).into()),
        }
    }

    /// Ends a token by order of an initiator that has it.
    pub(super) fn delete(&self, token: &Token) {
        let mut tokens = self.tokens();
        if let Some(entry) = tokens
            .iter_mut()
            .find(|entry| entry.life.is_alive() && entry.token.is(token))
        {
            entry.life = Life::Dead(Sense::TOKEN_DELETED);
        }
    }

    fn tokens(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.tokens.lock().expect("nothing panics while it is held")
    }
}

impl Life {
    const fn is_alive(&self) -> bool {
        match self {
            Self::Alive { .. } => true,
            Self::Dead(_) => false,
        }
    }
}

/// Notices who has died.
fn bury(tokens: &mut [Entry]) {
    let now = Instant::now();
    for entry in tokens {
        let Life::Alive { rod, patience } = &entry.life else {
            continue;
        };
        if rod.is_changed() || rod.unit().is_none() {
            entry.life = Life::Dead(Sense::TOKEN_REVOKED);
        } else if now.duration_since(entry.used) > *patience {
            entry.life = Life::Dead(Sense::TOKEN_EXPIRED);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scsi::cdb::LbaRange;
    use crate::scsi::testing::{counted, unit};

    fn service() -> (CopyService, Arc<LogicalUnit>, Arc<Rod>) {
        let unit = unit(64);
        let rod = Rod::new(&unit, vec![LbaRange { lba: 0, blocks: 8 }]);
        let service = CopyService::default();
        service.seed(counted);
        (service, unit, rod)
    }

    fn code(result: Result<Option<Arc<Rod>>, Failure>) -> (u8, u8) {
        match result {
            Err(Failure::Check(sense)) => sense.code,
            other => panic!("{other:?}"),
        }
    }

    const MINUTE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn a_token_lives_by_being_used() {
        let (service, unit, rod) = service();
        let token = service.make(&unit, &rod, MINUTE).unwrap();
        for _ in 0..3 {
            tokio::time::advance(MINUTE).await;
            assert!(Arc::ptr_eq(&service.open(&token).unwrap().unwrap(), &rod));
        }
        tokio::time::advance(MINUTE + Duration::from_millis(1)).await;
        assert_eq!(code(service.open(&token)), (0x23, 0x07));
        assert_eq!(code(service.open(&token)), (0x23, 0x07));
    }

    #[tokio::test]
    async fn every_other_end_of_a_token_is_told_too() {
        let (service, unit, rod) = service();
        let token = service.make(&unit, &rod, MINUTE).unwrap();
        let mut forged = *token.as_bytes();
        forged[500] ^= 1;
        assert_eq!(code(service.open(&Token::from_bytes(forged))), (0x23, 0x05));
        forged[8] ^= 1;
        assert_eq!(code(service.open(&Token::from_bytes(forged))), (0x23, 0x04));
        service.delete(&Token::from_bytes(forged));
        assert!(service.open(&token).is_ok());
        service.delete(&token);
        assert_eq!(code(service.open(&token)), (0x23, 0x09));
        let orphan = service.make(&unit, &rod, MINUTE).unwrap();
        drop(unit);
        assert_eq!(code(service.open(&orphan)), (0x23, 0x06));
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_table_gives_up_the_dead_and_then_the_least_lately_used() {
        let (service, unit, rod) = service();
        let first = service.make(&unit, &rod, 10 * MINUTE).unwrap();
        let dead = service.make(&unit, &rod, 10 * MINUTE).unwrap();
        service.delete(&dead);
        for _ in 2..MAXIMUM_TOKENS {
            service.make(&unit, &rod, 10 * MINUTE).unwrap();
        }
        tokio::time::advance(MINUTE).await;
        let more = service.make(&unit, &rod, 10 * MINUTE).unwrap();
        assert_eq!(service.tokens().len(), MAXIMUM_TOKENS);
        assert_eq!(code(service.open(&dead)), (0x23, 0x04));
        assert!(service.open(&first).is_ok() && service.open(&more).is_ok());
        service.make(&unit, &rod, 10 * MINUTE).unwrap();
        assert_eq!(service.tokens().len(), MAXIMUM_TOKENS);
        assert!(service.open(&first).is_ok());
    }

    #[test]
    fn without_randomness_there_are_no_tokens() {
        let (_, unit, rod) = service();
        assert!(CopyService::default().make(&unit, &rod, MINUTE).is_err());
    }
}
