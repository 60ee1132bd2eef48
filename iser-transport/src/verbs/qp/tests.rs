//! Whose memory is when: over a device that does what the test says.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::time::Duration;

use backstores::BufPool;
use futures_util::FutureExt;
use rdma_sys::ibv_transport_type;
use tokio::time::{Instant, timeout};

use super::super::fake::{Refusal, devices, fake, request};
use super::super::listener::Listener;
use super::*;
use crate::fabric::{Region, Remote};

const DEPTHS: Depths = Depths { send: 8, receive: 8 };
const ROCE: ibv_transport_type::Type = ibv_transport_type::IBV_TRANSPORT_IB;
const IWARP: ibv_transport_type::Type = ibv_transport_type::IBV_TRANSPORT_IWARP;

fn queue_pair(transport: ibv_transport_type::Type) -> (VerbsQueuePair, Arc<BufPool>) {
    let pool = BufPool::new(1 << 20);
    let request = request(Region::of(&pool), transport);
    (request.queue_pair(DEPTHS).unwrap(), pool)
}

fn read(pool: &Arc<BufPool>) -> Work {
    Work::Read {
        buf: pool.try_acquire(4096).unwrap(),
        at: 0,
        from: Remote { stag: 7, at: 0x1000 },
    }
}

fn event(qp: &mut VerbsQueuePair) -> Option<LinkEvent> {
    poll_fn(|cx| qp.poll_event(cx)).now_or_never()
}

/// A listener, and the request of somebody who came through a new device.
async fn called() -> (Listener, ConnectRequest) {
    fake(|fake| fake.is_called = true);
    let pool = BufPool::new(1 << 20);
    let address = SocketAddr::from(([0, 0, 0, 0], 3260));
    let mut listener = Listener::bind(&devices(Region::of(&pool)), address).unwrap();
    let request = listener.accept().await.unwrap();
    (listener, request)
}

/// The end of a work request, as the device tells it.
fn completion(id: u64) -> ibv_wc {
    // SAFETY: zeroes are a valid value of this plain structure, and say that all went well.
    let mut completion: ibv_wc = unsafe { std::mem::zeroed() };
    completion.wr_id = id;
    completion
}

#[tokio::test]
async fn an_identifier_goes_before_its_channel_where_no_queue_pair_can_be_made() {
    fake(|fake| fake.makes_no_queue_pair = true);
    let pool = BufPool::new(1 << 20);
    let request = request(Region::of(&pool), ROCE);
    let devices = Arc::clone(&request.devices);
    let error = request.queue_pair(DEPTHS).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOMEM));
    assert_eq!(
        fake(|fake| fake.freed.clone()),
        ["identifier", "channel", "completion queue", "completion channel"]
    );
    drop(devices);
}

#[tokio::test]
async fn a_request_outlives_its_listener_with_the_channel_that_it_came_over() {
    let (listener, request) = called().await;
    let _devices = Arc::clone(&request.devices);
    drop(listener);
    assert_eq!(fake(|fake| fake.freed.clone()), ["identifier"]);
    drop(request);
    assert_eq!(
        fake(|fake| fake.freed.clone()),
        ["identifier", "identifier", "channel"]
    );
}

#[tokio::test]
async fn a_device_is_opened_before_somebody_serves_the_connection() {
    let (_listener, request) = called().await;
    let _queue_pair = request.queue_pair(DEPTHS).unwrap();
    // By another thread, which has a device of its own here.
    assert_eq!(fake(|fake| fake.registered.len()), 0);
}

#[tokio::test]
async fn work_that_was_refused_comes_back_at_once_and_what_was_taken_does_not() {
    let (mut qp, pool) = queue_pair(ROCE);
    fake(|fake| fake.refuses = Some(Refusal::From(1)));
    qp.post(WorkId(1), read(&pool));
    qp.post(WorkId(2), read(&pool));
    let Some(LinkEvent::Done(Completion { id, result, .. })) = event(&mut qp) else {
        panic!()
    };
    assert!(id == WorkId(2) && result.is_err());
    assert_eq!(pool.stats().in_use, 4096);
}

#[tokio::test]
async fn memory_of_work_that_may_have_been_taken_stays_until_the_queue_pair_is_destroyed() {
    let (mut qp, pool) = queue_pair(ROCE);
    fake(|fake| fake.refuses = Some(Refusal::Doorbell));
    qp.post(WorkId(1), read(&pool));
    qp.post(WorkId(2), read(&pool));
    let lost = event(&mut qp);
    assert!(
        matches!(lost, Some(LinkEvent::Lost(LinkLost::Failed(_)))),
        "{lost:?}"
    );
    assert!(event(&mut qp).is_none());
    assert_eq!((pool.stats().in_use, fake(|fake| fake.freed.len())), (8192, 0));
    drop(qp);
    assert_eq!(
        (pool.stats().in_use, fake(|fake| fake.freed[0])),
        (0, "queue pair")
    );
}

#[tokio::test]
async fn over_iwarp_a_peer_may_write_into_what_is_read_and_nothing_else() {
    let (local, remote) = (1, 1 | 2);
    for (transport, expected) in [(ROCE, vec![local]), (IWARP, vec![local, remote])] {
        fake(|fake| *fake = Default::default());
        let (mut qp, pool) = queue_pair(transport);
        qp.post_receive(pool.try_acquire(4096).unwrap());
        let buf = pool.try_acquire(4096).unwrap();
        let to = Remote { stag: 7, at: 0 };
        qp.post(WorkId(1), Work::Write { buf, to });
        qp.post(WorkId(2), read(&pool));
        assert!(event(&mut qp).is_none());
        assert_eq!(fake(|fake| fake.registered.clone()), expected);
        // No longer than until the read has ended.
        let own = expected.len() - 1;
        fake(|fake| fake.completions.extend([completion(1), completion(2)]));
        assert!(matches!(event(&mut qp), Some(LinkEvent::Done(_))));
        assert!(matches!(event(&mut qp), Some(LinkEvent::Done(_))));
        assert_eq!(fake(|fake| fake.freed.clone()), vec!["registration"; own]);
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_device_does_not_ring_for_is_found_within_a_second() {
    let (mut qp, pool) = queue_pair(ROCE);
    qp.post(WorkId(1), read(&pool));
    assert!(event(&mut qp).is_none());
    let (begin, mut polls) = (Instant::now(), 0);
    let found = poll_fn(|cx| {
        polls += 1;
        let polled = qp.poll_event(cx);
        // When it is looked at for the first time, there is nothing yet.
        if polls == 1 {
            fake(|fake| fake.completions.push_back(completion(1)));
        }
        polled
    });
    let found = timeout(Duration::from_secs(60), found).await;
    assert!(matches!(found, Ok(LinkEvent::Done(_))));
    assert_eq!((begin.elapsed().as_secs(), fake(|fake| fake.arms)), (1, 1));
    // And it is asked once more to ring.
    assert!(event(&mut qp).is_none());
    assert_eq!(fake(|fake| fake.arms), 2);
}
