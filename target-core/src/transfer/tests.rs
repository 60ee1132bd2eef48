//! Data of a task against a connection that answers by hand.

use super::*;
use crate::scsi::testing::{Connection, connection};

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| u8::try_from(i % 251).unwrap()).collect()
}

/// A writing task over `data`, of which `immediate` bytes come with the command.
fn writing(data: &[u8], immediate: usize) -> (Transfer, Connection) {
    let expected = u32::try_from(data.len()).unwrap();
    let (setup, connection) = connection(0, expected, data.to_vec(), immediate);
    (Transfer::new(setup), connection)
}

fn reading(expected: u32) -> (Transfer, Connection) {
    let (setup, connection) = connection(expected, 0, Vec::new(), 0);
    (Transfer::new(setup), connection)
}

fn ended(status: Status, residual: Residual) -> Outcome {
    Outcome::Status {
        status,
        sense: None,
        residual,
    }
}

#[tokio::test]
async fn immediate_data_are_handed_on_without_a_copy_or_a_question() {
    let (mut data, connection) = writing(&pattern(512), 512);
    let place = data.arrived.as_ref().unwrap().as_ptr();
    assert_eq!(data.want_out(512), 512);
    let buf = data.get(512).await.unwrap();
    assert_eq!(buf.as_ptr(), place);
    assert_eq!(buf[..], pattern(512)[..]);
    data.finish(Ok(()));
    assert_eq!(connection.serve().await.0, ended(Status::Good, Residual::None));
}

#[tokio::test]
async fn the_rest_of_a_chunk_is_solicited_behind_immediate_data() {
    let (mut data, mut connection) = writing(&pattern(8192), 1024);
    data.want_out(8192);
    let (buf, ()) = tokio::join!(data.get(8192), async {
        let Some(TaskEvent::Get {
            offset,
            mut buf,
            filled,
            reply,
            ..
        }) = connection.event().await
        else {
            panic!("no Get");
        };
        assert_eq!((offset, filled, buf.len()), (0, 1024, 8192));
        buf[1024..].copy_from_slice(&pattern(8192)[1024..]);
        reply.send(Ok(buf)).unwrap();
    });
    assert_eq!(buf.unwrap()[..], pattern(8192)[..]);
}

#[tokio::test]
async fn immediate_data_can_be_longer_than_a_piece() {
    let (mut data, connection) = writing(&pattern(3000), 2000);
    data.want_out(3000);
    let (pieces, _) = tokio::join!(
        async {
            let mut pieces = Vec::new();
            for len in [500, 1000, 1000, 500] {
                pieces.extend_from_slice(&data.get(len).await.unwrap());
            }
            data.finish(Ok(()));
            pieces
        },
        connection.serve()
    );
    assert_eq!(pieces, pattern(3000));
}

#[tokio::test]
async fn one_chunk_is_solicited_ahead() {
    let whole = pattern(CHUNK + 512);
    let (mut data, mut connection) = writing(&whole, 0);
    data.want_out(whole.len() as u64);
    let answer = |event| {
        let Some(TaskEvent::Get {
            offset,
            mut buf,
            reply,
            ..
        }) = event
        else {
            panic!("no Get");
        };
        let from = offset as usize;
        let len = buf.len();
        buf.copy_from_slice(&whole[from..from + len]);
        reply.send(Ok(buf)).unwrap();
        (offset, len)
    };
    let (first, asked) = tokio::join!(data.get(CHUNK), async { answer(connection.event().await) });
    assert_eq!((first.unwrap().len(), asked), (CHUNK, (0, CHUNK)));
    // The second chunk was asked for before anybody wanted it.
    assert_eq!(answer(connection.event().await), (0x4_0000, 512));
    assert_eq!(data.get(512).await.unwrap()[..], whole[CHUNK..]);
}

#[tokio::test]
async fn a_failed_command_waits_for_what_it_solicited() {
    let whole = pattern(2 * CHUNK);
    let (mut data, connection) = writing(&whole, 0);
    data.want_out(whole.len() as u64);
    let ((), (outcome, _)) = tokio::join!(
        async {
            data.get(CHUNK).await.unwrap();
            assert!(data.ahead.is_some());
            data.settle().await.unwrap();
            data.finish(Err(Sense::WRITE_ERROR.into()));
        },
        connection.serve()
    );
    let Outcome::Status { status, residual, .. } = outcome else {
        panic!("aborted");
    };
    assert_eq!(
        (status, residual),
        (Status::CheckCondition, Residual::Underflow(0x4_0000))
    );
}

#[tokio::test]
async fn data_in_is_cut_to_the_room_and_the_rest_overflows() {
    let (mut data, connection) = reading(700);
    assert_eq!(data.want_in(1024), 700);
    data.put(data.buffer(512).await).await.unwrap();
    data.put(data.buffer(512).await).await.unwrap();
    data.finish(Ok(()));
    let (outcome, bytes) = connection.serve().await;
    assert_eq!(outcome, ended(Status::Good, Residual::Overflow(324)));
    assert_eq!(bytes.len(), 700);
}

#[tokio::test]
async fn parameter_data_are_cut_to_the_allocation_length() {
    let (mut data, connection) = reading(255);
    data.put_parameters(&pattern(96), 36).await.unwrap();
    data.finish(Ok(()));
    let (outcome, bytes) = connection.serve().await;
    assert_eq!(outcome, ended(Status::Good, Residual::Underflow(219)));
    assert_eq!(bytes, pattern(36));
}

#[tokio::test]
async fn a_parameter_list_may_be_shorter_than_announced() {
    let (mut data, connection) = writing(&pattern(20), 0);
    let (list, (outcome, _)) = tokio::join!(
        async {
            let list = data.get_parameters(24).await.unwrap();
            data.finish(Ok(()));
            list
        },
        connection.serve()
    );
    assert_eq!(list, pattern(20));
    assert_eq!(outcome, ended(Status::Good, Residual::Overflow(4)));
}

#[tokio::test]
async fn an_abort_wakes_a_task_that_waits_for_data() {
    let (mut data, mut connection) = writing(&pattern(512), 0);
    let abort = data.abort_signal().clone();
    data.want_out(512);
    let (buf, _get) = tokio::join!(data.get(512), async {
        let get = connection.event().await;
        abort.fire();
        get
    });
    assert!(matches!(buf, Err(Failure::Aborted)));
    assert!(matches!(data.check(), Err(Failure::Aborted)));
    data.finish(Ok(()));
    assert_eq!(connection.serve().await.0, Outcome::Aborted);
}

#[tokio::test]
async fn an_abort_wakes_a_task_that_waits_for_its_share() {
    let (setup, connection) = connection(4096, 0, Vec::new(), 0);
    let mut data = Transfer::new(TransferSetup {
        budget: Arc::new(Semaphore::new(512)),
        out_budget: Arc::new(Semaphore::new(8 << 20)),
        ..setup
    });
    let abort = data.abort_signal().clone();
    data.want_in(4096);
    let buf = data.buffer(4096).await;
    let (put, ()) = tokio::join!(data.put(buf), async { abort.fire() });
    assert!(matches!(put, Err(Failure::Aborted)));
    data.finish(put);
    assert_eq!(connection.serve().await, (Outcome::Aborted, Vec::new()));
}

#[tokio::test]
async fn a_task_that_waits_for_its_share_holds_no_buffer() {
    let (setup, _connection) = connection(4096, 4096, Vec::new(), 0);
    let (pool, none) = (Arc::clone(&setup.pool), Arc::new(Semaphore::new(0)));
    let before = pool.stats().in_use;
    let mut data = Transfer::new(TransferSetup {
        budget: Arc::clone(&none),
        out_budget: none,
        ..setup
    });
    data.want_in(4096);
    data.want_out(4096);
    let mut reading = Box::pin(data.in_buffer(4096));
    assert!(futures_util::poll!(&mut reading).is_pending());
    assert_eq!(pool.stats().in_use, before, "Data-In");
    drop(reading);
    let mut writing = Box::pin(data.get(4096));
    assert!(futures_util::poll!(&mut writing).is_pending());
    assert_eq!(pool.stats().in_use, before, "Data-Out");
}

#[tokio::test]
async fn what_breaks_the_rules_of_data_out_becomes_the_sense() {
    let (mut data, mut connection) = writing(&pattern(512), 0);
    data.want_out(512);
    let (buf, ()) = tokio::join!(data.get(512), async {
        let Some(TaskEvent::Get { reply, .. }) = connection.event().await else {
            panic!("no Get");
        };
        reply.send(Err(Sense::PROTOCOL_SERVICE_CRC_ERROR)).unwrap();
    });
    assert!(matches!(
        buf,
        Err(Failure::Check(Sense::PROTOCOL_SERVICE_CRC_ERROR))
    ));
}

#[tokio::test]
async fn a_connection_that_is_gone_aborts() {
    let (mut data, connection) = reading(512);
    drop(connection);
    data.want_in(512);
    let buf = data.buffer(512).await;
    assert!(matches!(data.put(buf).await, Err(Failure::Aborted)));
}

#[tokio::test]
async fn a_task_that_holds_a_buffer_does_not_wait_for_the_pool() {
    let (setup, _connection) = connection(0, 3000, pattern(3000), 2000);
    let pool = BufPool::new(CHUNK);
    let _all = pool.try_acquire(CHUNK).unwrap();
    let mut data = Transfer::new(TransferSetup { pool, ..setup });
    data.want_out(3000);
    let std::task::Poll::Ready(piece) = futures_util::poll!(Box::pin(data.get(500))) else {
        panic!("waits");
    };
    assert_eq!(piece.unwrap()[..], pattern(500)[..]);
    assert_eq!(data.second_buffer(CHUNK).len(), CHUNK);
}

#[tokio::test]
async fn an_abort_gives_back_what_a_waiting_task_holds() {
    let (setup, mut connection) = connection(4096, 4096, pattern(4096), 0);
    let (budget, out_budget) = (Arc::clone(&setup.budget), Arc::clone(&setup.out_budget));
    let free = (budget.available_permits(), out_budget.available_permits());
    // The pool is dry: Data-In waits with a share, Data-Out with a share as well.
    let pool = BufPool::new(CHUNK);
    let all = pool.try_acquire(CHUNK).unwrap();
    let mut data = Transfer::new(TransferSetup { pool, ..setup });
    let abort = data.abort_signal().clone();
    data.want_in(4096);
    data.want_out(4096);
    let mut reading = Box::pin(data.in_buffer(4096));
    assert!(futures_util::poll!(&mut reading).is_pending());
    assert_eq!(budget.available_permits(), free.0 - 4096);
    drop((reading, all));
    let (buf, _get) = tokio::join!(data.get(4096), async {
        let get = connection.event().await;
        assert_eq!(out_budget.available_permits(), free.1 - 4096);
        abort.fire();
        get
    });
    assert!(matches!(buf, Err(Failure::Aborted)));
    data.finish(Err(Failure::Aborted));
    assert_eq!((budget.available_permits(), out_budget.available_permits()), free);
}
