//! What outlives a loss of power: asked for by APTPL, durable before GOOD, and nothing changed when it cannot be.

use super::*;
use crate::scsi::testing::{device, unit};
use crate::scsi::{KeepRequest, KeptReservations, LogicalUnit, ReservationKeeper};
use tokio::sync::mpsc;

/// A unit with a keeper, and the keeper's end.
fn kept_unit(
    kept: Option<KeptReservations>,
) -> (
    Arc<TargetDevice>,
    Arc<LogicalUnit>,
    mpsc::UnboundedReceiver<KeepRequest>,
) {
    let (keeper, requests): (ReservationKeeper, _) = mpsc::unbounded_channel();
    let unit = unit(64);
    unit.keep_reservations(keeper, kept);
    (device(&[Arc::clone(&unit)]), unit, requests)
}

/// Runs a command that has to be kept, and answers for the keeper.
async fn kept(
    device: &Arc<TargetDevice>,
    nexus: &Arc<NexusId>,
    command: Command,
    requests: &mut mpsc::UnboundedReceiver<KeepRequest>,
) -> (Ended, Option<KeptReservations>) {
    let mut running = Box::pin(command.begin(device, nexus));
    assert!(advance(&mut running).is_none(), "it waits until it is durable");
    let request = requests.try_recv().unwrap();
    assert_eq!(request.unit, "600102030405060708090a0b0c0d0e0f");
    request.done.send(Ok(())).unwrap();
    (ended(&running.await.0), request.reservations)
}

#[tokio::test]
async fn what_was_kept_is_there_after_a_loss_of_power() {
    let (device, _, mut requests) = kept_unit(None);
    let (one, two) = (session(&device, 1).await, session(&device, 2).await);
    assert_eq!(
        kept(&device, &one, prout(REGISTER, 0, 0, 1, APTPL), &mut requests)
            .await
            .0,
        Good
    );
    let (_, first) = kept(&device, &two, prout(REGISTER, 0, 0, 2, APTPL), &mut requests).await;
    assert_eq!(first.unwrap().registrations.len(), 2);
    let (_, saved) = kept(&device, &one, prout(RESERVE, 6, 1, 0, 0), &mut requests).await;
    let caps = prin(2).run(&device, &one).await.1;
    assert_eq!(caps[..4], [0, 8, 0x9d, 0xc1], "PTPL_C and PTPL_A");

    let (device, _, _requests) = kept_unit(saved);
    let [one, two, three] = [
        session(&device, 1).await,
        session(&device, 2).await,
        session(&device, 3).await,
    ];
    assert_eq!(
        prin(1).run(&device, &two).await.1,
        [
            0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 6, 0, 0
        ],
        "the generation begins anew"
    );
    assert_eq!(run(&device, &three, read()).await, Conflict);
    assert_eq!(run(&device, &two, write(2)).await, Good);
    assert_eq!(run(&device, &one, write(1)).await, Good);
}

#[tokio::test]
async fn the_last_aptpl_decides() {
    let (device, _, mut requests) = kept_unit(None);
    let one = session(&device, 1).await;
    assert_eq!(run(&device, &one, prout(REGISTER, 0, 0, 1, 0)).await, Good);
    assert!(requests.try_recv().is_err(), "nobody asked for it");
    let (_, on) = kept(&device, &one, prout(REGISTER, 0, 1, 1, APTPL), &mut requests).await;
    assert!(on.is_some());
    let (_, off) = kept(&device, &one, prout(REGISTER, 0, 1, 1, 0), &mut requests).await;
    assert_eq!(off, None);
}

#[tokio::test]
async fn what_cannot_be_kept_is_not_done() {
    let (device, _, mut requests) = kept_unit(None);
    let (one, two) = (session(&device, 1).await, session(&device, 2).await);
    kept(&device, &one, prout(REGISTER, 0, 0, 1, APTPL), &mut requests).await;
    for is_answered in [true, false] {
        let mut running = Box::pin(prout(RESERVE, 3, 1, 0, 0).begin(&device, &one));
        assert!(advance(&mut running).is_none());
        let request = requests.try_recv().unwrap();
        if is_answered {
            request.done.send(Err("no space".to_owned())).unwrap();
        } else {
            drop(request);
        }
        assert_eq!(ended(&running.await.0), Check(0x44, 0x00));
        assert_eq!(run(&device, &two, write(1)).await, Good, "nothing is reserved");
    }
    drop(requests);
    assert_eq!(
        run(&device, &one, prout(CLEAR, 0, 1, 0, 0)).await,
        Check(0x44, 0x00)
    );
    assert_eq!(prin(0).run(&device, &two).await.1.len(), 16, "still registered");
}

#[tokio::test]
async fn others_wait_for_a_change_under_way_and_see_it_whole() {
    let (device, _, mut requests) = kept_unit(None);
    let (one, two) = (session(&device, 1).await, session(&device, 2).await);
    kept(&device, &one, prout(REGISTER, 0, 0, 1, APTPL), &mut requests).await;
    kept(&device, &two, prout(REGISTER, 0, 0, 2, APTPL), &mut requests).await;
    let mut reserving = Box::pin(prout(RESERVE, 1, 1, 0, 0).begin(&device, &one));
    assert!(advance(&mut reserving).is_none());
    assert_eq!(run(&device, &two, write(2)).await, Good, "it is not reserved yet");
    let mut second = Box::pin(prout(RESERVE, 1, 2, 0, 0).begin(&device, &two));
    assert!(advance(&mut second).is_none());
    let third = prout(RESERVE, 1, 2, 0, 0);
    let abort = third.abort.clone();
    let third = third.begin(&device, &two);
    abort.fire();
    assert_eq!(third.await.0, Outcome::Aborted, "an abort ends the waiting");
    requests.try_recv().unwrap().done.send(Ok(())).unwrap();
    assert_eq!(ended(&reserving.await.0), Good);
    assert_eq!(ended(&second.await.0), Conflict);
}

#[tokio::test]
async fn a_change_goes_on_when_its_initiator_does_not_wait_for_it() {
    let (device, _, mut requests) = kept_unit(None);
    let one = session(&device, 1).await;
    let command = prout(REGISTER, 0, 0, 1, APTPL);
    let abort = command.abort.clone();
    let mut running = Box::pin(command.begin(&device, &one));
    assert!(advance(&mut running).is_none());
    abort.fire();
    assert!(advance(&mut running).is_none());
    requests.try_recv().unwrap().done.send(Ok(())).unwrap();
    assert_eq!(running.await.0, Outcome::Aborted);
    assert_eq!(
        prin(0).run(&device, &one).await.1.len(),
        16,
        "what is durable is true"
    );
}
