//! A random walk of two to four nexuses through everything that reserves, in step with the model: 100 walks of 1000
//! steps. After each step both agree on how the command ended, on all that can be read, and on who has to be told what.

use std::sync::Mutex;

use proptest::collection::vec;
use proptest::prelude::*;
use tokio::sync::mpsc;

use super::model::{Model, Prout};
use super::*;
use crate::scsi::reservations::TransportId;
use crate::scsi::testing::{device, unit};
use crate::scsi::{KeepRequest, KeptReservations};
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

fn prout_steps() -> impl Strategy<Value = Step> {
    let kind = prop_oneof![20 => prop::sample::select(vec![1_u8, 3, 5, 6, 7, 8]), 1 => Just(2_u8)];
    let action = prop_oneof![3 => Just(0_u8), 3 => Just(1), 1 => Just(2), 1 => Just(3), 2 => Just(4), 2 => Just(5),
        2 => Just(6), 2 => Just(7), 1 => Just(8)];
    let numbers = (action, kind, 0..4_u64, 0..4_u64, 0..4_usize);
    let switches = (
        any::<bool>(),
        prop::bool::weighted(0.1),
        any::<bool>(),
        prop::bool::weighted(0.8),
    );
    (numbers, switches).prop_map(
        |((action, kind, key, action_key, other), (aptpl, specifies, unregister, with_own_key))| {
            Step::Prout {
                prout: Prout {
                    action,
                    kind,
                    key,
                    action_key,
                    aptpl,
                    other: (specifies || action == 7).then_some(other),
                    unregister,
                },
                with_own_key,
            }
        },
    )
}

fn steps() -> impl Strategy<Value = Vec<(usize, Step)>> {
    let step = prop_oneof![
        30 => prout_steps(),
        3 => Just(Step::Reserve6),
        3 => Just(Step::Release6),
        6 => Just(Step::TestUnitReady),
        5 => Just(Step::Read),
        5 => Just(Step::Write),
        3 => Just(Step::Leave),
        1 => Just(Step::Reset),
        1 => Just(Step::LosePower),
    ];
    vec((0..4_usize, step), 1000)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, max_shrink_iters: 2000, ..ProptestConfig::default() })]

    #[test]
    fn a_walk_of_every_service_action_agrees_with_the_model(nexuses in 2..=4_usize, steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut walk = Walk::new(nexuses);
            for (number, (n, step)) in steps.into_iter().enumerate() {
                walk.step(n % nexuses, &step).await.map_err(|difference| {
                    TestCaseError::fail(format!("step {number}, nexus {}, {step:?}: {difference}", n % nexuses))
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
        Self {
            model: Model::new(nexuses),
            device: powered_on(&kept),
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
                prout.other = prout.other.map(|other| other % self.nexuses.len());
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
                self.device = powered_on(&self.kept);
                self.is_there.fill(false);
                self.model.lose_power();
            }
        }
        self.compare().await
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

    /// Everything that can be read.
    async fn compare(&self) -> Result<(), String> {
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
            let n = usize::from(rest[24 + 4 + 44] - b'1');
            registered[n] = (u64::from_be_bytes(*rest.first_chunk().unwrap()), rest[12] == 1);
            rest = &rest[24 + usize::from(rest[23])..];
        }
        let expected: Vec<_> = (0..self.nexuses.len())
            .map(|n| {
                (
                    self.model.keys[n],
                    self.model.keys[n] != 0 && self.model.is_holder(n),
                )
            })
            .collect();
        same(registered, expected)
    }
}

/// A unit as it is after power on, with a keeper that keeps to `kept`.
fn powered_on(kept: &Arc<Mutex<Option<KeptReservations>>>) -> Arc<TargetDevice> {
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
    device(&[unit])
}

fn same<T: PartialEq + std::fmt::Debug>(seen: T, expected: T) -> Result<(), String> {
    if seen == expected {
        return Ok(());
    }
    Err(format!("{seen:?}, and the model says {expected:?}"))
}
