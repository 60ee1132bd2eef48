//! A random walk of two to four nexuses through everything that reserves, in step with the model: 100 walks of 1000
//! steps. After each step both agree on how the command ended and on what is registered and reserved; every sixteenth
//! time that is also read as initiators read it. Whom what has to be told comes out with later commands.

use std::sync::Mutex;

use proptest::collection::vec;
use proptest::prelude::*;
use tokio::sync::mpsc;

use super::model::{Model, Prout};
use super::*;
use crate::scsi::reservations::TransportId;
use crate::scsi::testing::{device, unit};
use crate::scsi::{KeepRequest, KeptReservations, LogicalUnit};
use iscsi_proto::Lun;
use iscsi_proto::pdu::Function;

#[derive(Clone, Debug)]
enum Step {
    Prout {
        prout: Prout,
        /// The nexus' own key stands for whatever key was drawn.
        with_own_key: bool,
    },
    Reserve6,
    Release6,
    TestUnitReady,
    Read,
    Write,
    Leave,
    Reset,
    LosePower,
}

/// A number from which choices are taken, so that a walk costs one draw a step.
struct Draw(u64);

impl Draw {
    fn below(&mut self, choices: u64) -> u64 {
        let choice = self.0 % choices;
        self.0 /= choices;
        choice
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[usize::try_from(self.below(choices.len() as u64)).unwrap()]
    }

    fn nexus(&mut self, nexuses: usize) -> usize {
        usize::try_from(self.below(nexuses as u64)).unwrap()
    }

    /// Who does it, and what.
    fn step(mut self, nexuses: usize) -> (usize, Step) {
        let n = self.nexus(nexuses);
        let step = match self.below(57) {
            0..30 => self.prout(nexuses),
            30..33 => Step::Reserve6,
            33..36 => Step::Release6,
            36..42 => Step::TestUnitReady,
            42..47 => Step::Read,
            47..52 => Step::Write,
            52..55 => Step::Leave,
            55 => Step::Reset,
            _ => Step::LosePower,
        };
        (n, step)
    }

    fn prout(&mut self, nexuses: usize) -> Step {
        let action = self.of(&[
            REGISTER,
            REGISTER,
            REGISTER,
            RESERVE,
            RESERVE,
            RESERVE,
            RELEASE,
            CLEAR,
            PREEMPT,
            PREEMPT,
            PREEMPT_AND_ABORT,
            REGISTER_AND_IGNORE,
            REGISTER_AND_IGNORE,
            REGISTER_AND_MOVE,
            REGISTER_AND_MOVE,
            REPLACE_LOST,
        ]);
        let other = self.nexus(nexuses);
        let names_another = self.below(10) == 0 || action == REGISTER_AND_MOVE;
        Step::Prout {
            prout: Prout {
                action,
                kind: self.of(&[1, 3, 5, 6, 7, 8, 1, 3, 5, 6, 7, 8, 2]),
                key: self.below(4),
                action_key: self.below(4),
                aptpl: self.below(2) == 1,
                other: names_another.then_some(other),
                unregister: self.below(2) == 1,
            },
            with_own_key: self.below(5) != 0,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, max_shrink_iters: 2000, ..ProptestConfig::default() })]

    #[test]
    fn a_walk_of_every_service_action_agrees_with_the_model(
        nexuses in 2..=4_usize,
        draws in vec(any::<u64>(), 1000),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut walk = Walk::new(nexuses);
            for (number, draw) in draws.into_iter().enumerate() {
                let (n, step) = Draw(draw).step(nexuses);
                let mut agree = walk.step(n, &step).await;
                if agree.is_ok() && number % 16 == 0 {
                    agree = walk.read().await;
                }
                agree.map_err(|difference| {
                    TestCaseError::fail(format!("step {number}, nexus {n}, {step:?}: {difference}"))
                })?;
            }
            Ok::<(), TestCaseError>(())
        })?;
    }
}

/// The unit and the model beside it.
struct Walk {
    model: Model,
    device: Arc<TargetDevice>,
    unit: Arc<LogicalUnit>,
    nexuses: Vec<Arc<NexusId>>,
    is_there: Vec<bool>,
    /// Never registered, so that it has never anything to be told.
    observer: Arc<NexusId>,
    /// What is on the keeper's disk.
    kept: Arc<Mutex<Option<KeptReservations>>>,
}

impl Walk {
    fn new(nexuses: usize) -> Self {
        let kept = Arc::default();
        let (device, unit) = powered_on(&kept);
        Self {
            model: Model::new(nexuses),
            device,
            unit,
            nexuses: (1..).map(nexus).take(nexuses).collect(),
            is_there: vec![false; nexuses],
            observer: nexus(99),
            kept,
        }
    }

    async fn step(&mut self, n: usize, step: &Step) -> Result<(), String> {
        if !self.is_there[n] && !matches!(step, Step::Leave | Step::LosePower) {
            self.device.attach(&self.nexuses[n]);
            self.is_there[n] = true;
            same(self.run(n, test_unit_ready()).await, Check(0x29, 0x00))?;
        }
        match step {
            Step::Prout { prout, with_own_key } => {
                let mut prout = *prout;
                if *with_own_key {
                    prout.key = self.model.keys[n];
                }
                let command = self.command(prout);
                same(self.run(n, command).await, self.model.prout(n, prout))?;
            }
            Step::Reserve6 => same(
                self.run(n, Command::new(0, &[0x16])).await,
                self.model.reserve_6(n),
            )?,
            Step::Release6 => same(
                self.run(n, Command::new(0, &[0x17])).await,
                self.model.release_6(n),
            )?,
            Step::TestUnitReady => same(
                self.run(n, test_unit_ready()).await,
                self.model.command(n, false, false),
            )?,
            Step::Read => same(self.run(n, read()).await, self.model.command(n, true, false))?,
            Step::Write => same(self.run(n, write(7)).await, self.model.command(n, false, true))?,
            Step::Leave => {
                self.device.detach(&self.nexuses[n]);
                self.is_there[n] = false;
                self.model.leave(n);
            }
            Step::Reset => {
                self.device
                    .manage(&self.nexuses[n], Function::LogicalUnitReset, Lun::ZERO);
                self.model.legacy = None;
                for m in 0..self.nexuses.len() {
                    if self.is_there[m] {
                        same(self.run(m, test_unit_ready()).await, Check(0x29, 0x03))?;
                    }
                }
            }
            Step::LosePower => {
                (self.device, self.unit) = powered_on(&self.kept);
                self.is_there.fill(false);
                self.model.lose_power();
            }
        }
        self.compare()
    }

    async fn run(&self, n: usize, command: Command) -> Ended {
        run(&self.device, &self.nexuses[n], command).await
    }

    fn command(&self, prout: Prout) -> Command {
        let id = prout
            .other
            .map(|other| TransportId::encode(&self.nexuses[other].initiator));
        let mut list = basic(prout.key, prout.action_key, u8::from(prout.aptpl));
        match id {
            Some(id) if prout.action == REGISTER_AND_MOVE => {
                list[16..].fill(0);
                list[17] = u8::from(prout.unregister) << 1 | u8::from(prout.aptpl);
                list[19] = 1;
                list[23] = u8::try_from(id.len()).unwrap();
                list.extend(id);
            }
            Some(id) => {
                list[20] |= SPEC_I_PT;
                list.extend([0, 0, 0, u8::try_from(id.len()).unwrap()]);
                list.extend(id);
            }
            None => {}
        }
        prout_list(prout.action, prout.kind, &list)
    }

    /// Who is registered and who holds the unit, by the unit's own account.
    fn compare(&self) -> Result<(), String> {
        let Ok(state) = self.unit.reservations().persistent() else {
            return same(true, self.model.legacy.is_some());
        };
        same(false, self.model.legacy.is_some())?;
        let registered = self
            .nexuses
            .iter()
            .map(|nexus| (state.key_of(nexus).unwrap_or(0), state.is_holder(nexus)))
            .collect();
        same(registered, self.registered())?;
        same(
            state
                .reservation
                .as_ref()
                .map(|reservation| reservation.kind.code()),
            self.model.held.map(|(kind, _)| kind),
        )?;
        same(state.generation, self.model.generation)
    }

    /// The same as everybody can read it.
    async fn read(&self) -> Result<(), String> {
        let (outcome, full) = prin(3).run(&self.device, &self.observer).await;
        if self.model.legacy.is_some() {
            return same(ended(&outcome), Conflict);
        }
        let (_, reservation) = prin(1).run(&self.device, &self.observer).await;
        let mut expected = vec![0; 8];
        expected[..4].copy_from_slice(&self.model.generation.to_be_bytes());
        if let Some((kind, holder)) = self.model.held {
            let key = if kind >= 7 { 0 } else { self.model.keys[holder] };
            expected[7] = 16;
            expected.extend(key.to_be_bytes());
            expected.extend([0, 0, 0, 0, 0, kind, 0, 0]);
        }
        same(reservation, expected)?;

        let mut registered = vec![(0, false); self.nexuses.len()];
        let mut rest = &full[8..];
        while !rest.is_empty() {
            // The last digit of the ISID.
            let n = usize::from(rest[24 + 4 + 44] - b'1');
            registered[n] = (u64::from_be_bytes(*rest.first_chunk().unwrap()), rest[12] == 1);
            rest = &rest[24 + usize::from(rest[23])..];
        }
        same(registered, self.registered())
    }

    fn registered(&self) -> Vec<(u64, bool)> {
        (0..self.nexuses.len())
            .map(|n| (self.model.keys[n], self.model.is_holder(n)))
            .collect()
    }
}

/// A unit as it is after power on, with a keeper that keeps to `kept`.
fn powered_on(kept: &Arc<Mutex<Option<KeptReservations>>>) -> (Arc<TargetDevice>, Arc<LogicalUnit>) {
    let (keeper, mut requests) = mpsc::unbounded_channel::<KeepRequest>();
    let unit = unit(64);
    unit.keep_reservations(keeper, kept.lock().unwrap().clone());
    let kept = Arc::clone(kept);
    tokio::spawn(async move {
        while let Some(request) = requests.recv().await {
            *kept.lock().unwrap() = request.reservations;
            drop(request.done.send(Ok(())));
        }
    });
    (device(&[Arc::clone(&unit)]), unit)
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "what is compared is made on the spot"
)]
fn same<T: PartialEq + std::fmt::Debug>(seen: T, expected: T) -> Result<(), String> {
    if seen == expected {
        return Ok(());
    }
    Err(format!("{seen:?}, and the model says {expected:?}"))
}
