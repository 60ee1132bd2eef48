//! The link in memory keeps what it promises.

use futures_util::FutureExt;

use super::*;
use crate::fabric::Completion;

fn buf(bytes: &[u8]) -> IoBuf {
    let mut buf = IoBuf::from_heap(bytes.len());
    buf.copy_from_slice(bytes);
    buf
}

async fn event(qp: &mut SimQueuePair) -> LinkEvent {
    std::future::poll_fn(|cx| qp.poll_event(cx)).await
}

fn now_or_never(qp: &mut SimQueuePair) -> Option<LinkEvent> {
    event(qp).now_or_never()
}

fn send(qp: &mut SimQueuePair, id: u64, bytes: &[u8]) {
    let work = Work::Send {
        buf: buf(bytes),
        invalidate: None,
    };
    qp.post(WorkId(id), work);
}

#[tokio::test(start_paused = true)]
async fn messages_arrive_in_order_and_wait_for_receives() {
    let (mut left, mut right) = link(1, Weather::default());
    send(&mut left, 1, b"one");
    send(&mut left, 2, b"two");
    assert!(now_or_never(&mut left).is_none());
    assert_eq!(right.waits_for_receives(), 1);
    right.post_receive(IoBuf::from_heap(16));
    right.post_receive(IoBuf::from_heap(16));
    for expected in [b"one", b"two"] {
        let LinkEvent::Received(message) = event(&mut right).await else {
            panic!()
        };
        assert_eq!(&message[..], expected);
    }
    assert!(matches!(
        event(&mut left).await,
        LinkEvent::Done(Completion { result: Ok(()), .. })
    ));
}

#[tokio::test(start_paused = true)]
async fn memory_is_written_and_read_where_it_is_open_and_nowhere_else() {
    let (mut left, mut right) = link(1, Weather::default());
    let place = right.register(vec![7; 8]);
    let read = Work::Read {
        buf: buf(&[0; 4]),
        at: 2,
        from: place.plus(6),
    };
    left.post(WorkId(1), read);
    let LinkEvent::Done(done) = event(&mut left).await else {
        panic!()
    };
    assert_eq!((&done.buf[..], done.result), (&[0, 0, 7, 7][..], Ok(())));
    left.post(
        WorkId(2),
        Work::Write {
            buf: buf(&[1, 2]),
            to: place.plus(7),
        },
    );
    let LinkEvent::Done(done) = event(&mut left).await else {
        panic!()
    };
    assert!(done.result.is_err());
    assert_eq!((left.refusals(), right.refusals()), (0, 1));
    assert_eq!(right.deregister(place.stag), Some(vec![7; 8]));
    assert!(matches!(event(&mut right).await, LinkEvent::Lost(_)));
}

#[tokio::test(start_paused = true)]
async fn a_tag_of_one_link_opens_nothing_on_another() {
    let (_left, mut right) = link(1, Weather::default());
    let place = right.register(vec![7; 8]);
    let (mut other_left, mut other_right) = link(2, Weather::default());
    other_right.register(vec![7; 8]);
    let read = Work::Read {
        buf: buf(&[0; 4]),
        at: 0,
        from: place,
    };
    other_left.post(WorkId(1), read);
    let LinkEvent::Done(done) = event(&mut other_left).await else {
        panic!()
    };
    assert!(done.result.is_err());
    assert_eq!(other_right.refusals(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_tag_that_a_message_invalidated_is_closed() {
    let (mut left, mut right) = link(1, Weather::default());
    let place = right.register(vec![0; 8]);
    right.post_receive(IoBuf::from_heap(16));
    left.post(
        WorkId(1),
        Work::Send {
            buf: buf(b"bye"),
            invalidate: Some(place.stag),
        },
    );
    assert!(matches!(event(&mut right).await, LinkEvent::Received(_)));
    assert!(right.is_invalid(place.stag));
}

#[tokio::test(start_paused = true)]
async fn what_is_outstanding_when_the_link_is_lost_completes_late_and_with_an_error() {
    let (mut left, mut right) = link(1, Weather::default());
    send(&mut left, 1, b"nobody takes this");
    right.disconnect();
    assert!(matches!(
        event(&mut left).await,
        LinkEvent::Lost(LinkLost::Disconnected)
    ));
    assert!(now_or_never(&mut left).is_none(), "late");
    assert!(matches!(
        event(&mut left).await,
        LinkEvent::Done(Completion { result: Err(_), .. })
    ));
}
