//! Initiators that want to cost memory, time or the turn of others.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::fabric::{Capabilities, Work, WorkId};

/// A queue pair whose peer never pauses: there is always another message.
#[derive(Debug, Default)]
struct Flood {
    receives: Vec<IoBuf>,
}

impl QueuePair for Flood {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            send_depth: 16,
            receive_depth: 16,
            reads_max: 1,
            can_invalidate: false,
        }
    }

    fn post(&mut self, _: WorkId, _: Work) {}

    fn post_receive(&mut self, buf: IoBuf) {
        self.receives.push(buf);
    }

    fn poll_event(&mut self, _: &mut Context<'_>) -> Poll<LinkEvent> {
        let mut buf = self.receives.pop().expect("a receive for each message");
        let header = IserHeader::Control {
            read: None,
            write: None,
        };
        buf.set_len(HEADER_LEN + BHS_LEN);
        buf.copy_from_slice(&[&header.encode()[..], &nop(1)].concat());
        Poll::Ready(LinkEvent::Received(buf))
    }

    fn move_here(&mut self) -> std::io::Result<()> {
        Ok(())
    }

    fn disconnect(&mut self) {}
}

fn pong(itt: u32) -> Response {
    Response::NopIn(NopIn {
        lun: Lun::ZERO,
        itt: Itt(itt),
        ttt: Ttt::RESERVED,
        stat_sn: Sn(1),
        exp_cmd_sn: Sn(1),
        max_cmd_sn: Sn(9),
    })
}

#[tokio::test]
async fn messages_without_end_leave_others_their_turn() {
    let setup = IserSetup {
        pool: BufPool::new(CHUNK),
        messages: BufPool::new(CHUNK),
        peer: None,
    };
    let mut mover = IserMover::new(Flood::default(), setup).unwrap();
    let had_turn = Arc::new(AtomicBool::new(false));
    let other = Arc::clone(&had_turn);
    tokio::spawn(async move { other.store(true, Ordering::Relaxed) });
    for _ in 0..10_000 {
        let notify = poll_fn(|cx| mover.poll_notify(cx)).await;
        assert!(matches!(notify, Notify::Control { .. }), "{notify:?}");
    }
    assert!(had_turn.load(Ordering::Relaxed));
}

/// An initiator in full feature phase that has receives for nothing, not even for the login's response.
fn takes_no_answers() -> Pair {
    let (target, initiator) = link(7, Weather::default());
    let (pool, messages) = (BufPool::new(1 << 20), BufPool::new(64 << 20));
    let setup = IserSetup {
        pool: Arc::clone(&pool),
        messages: Arc::clone(&messages),
        peer: Some(LINUX),
    };
    let mut pair = Pair {
        mover: IserMover::new(target, setup).unwrap(),
        initiator: Initiator::new(initiator, 0),
        pool,
        messages,
    };
    pair.mover.send_control(login_response(4), Bytes::new());
    pair.mover.enable(&with_window(4, &agreed(&[])));
    pair
}

#[tokio::test(start_paused = true)]
async fn answers_that_nobody_takes_keep_no_more_memory_than_is_said() {
    let mut pair = takes_no_answers();
    for itt in 0..10_000 {
        pair.initiator.send(nop(itt), &[]);
        if timeout(Duration::from_secs(1), pair.notify()).await.is_err() {
            break;
        }
        pair.mover.send_control(pong(itt), Bytes::new());
    }
    // Each receive that was out when the bound was reached, and the answer to what came into it.
    let receives = 4 + IMMEDIATE_MAX + UNEXPECTED_MAX;
    let in_use = pair.messages.stats().in_use;
    assert!(
        in_use <= UNSENT_MAX + receives * (MESSAGE_MAX + 4096) + 4096,
        "{in_use} bytes"
    );
}

#[tokio::test(start_paused = true)]
async fn a_flood_gets_no_more_receives_until_its_answers_are_taken() {
    let mut pair = takes_no_answers();
    (0..FLOOD).for_each(|itt| pair.initiator.send(nop(itt), &[]));
    let mut heard = 0;
    while let Ok(notify) = timeout(Duration::from_secs(1), pair.notify()).await {
        let Notify::Control { .. } = notify else {
            panic!("{notify:?}")
        };
        pair.mover.send_control(pong(heard), Bytes::new());
        heard += 1;
    }
    // 8 MiB in answers of 4 KiB, the login's among them; then each receive that was out is used once.
    assert_eq!(heard, 2048 + 4 + 16 + 32);
    for _ in 0..16 {
        let receive = IoBuf::from_heap(MESSAGE_MAX);
        pair.initiator.queue_pair().post_receive(receive);
    }
    let mut answers = 0;
    while answers < FLOOD + 1 {
        let (mover, initiator) = (&mut pair.mover, &mut pair.initiator);
        let next = async {
            tokio::select! { biased;
                message = initiator.message() => {
                    assert!(message.is_some());
                    answers += 1;
                }
                notify = poll_fn(|cx| mover.poll_notify(cx)) => {
                    assert!(matches!(notify, Notify::Control { .. }), "{notify:?}");
                    mover.send_control(pong(heard), Bytes::new());
                    heard += 1;
                }
            }
        };
        let went_on = timeout(Duration::from_secs(1), next).await;
        went_on.unwrap_or_else(|_| panic!("stuck with {heard} heard, {answers} answers"));
    }
    assert_eq!(heard, FLOOD);
}

#[tokio::test(start_paused = true)]
async fn an_aborted_read_that_is_never_answered_stands_out_although_all_else_goes_on() {
    let mut pair = pair(Weather::default());
    pair.full_feature(8, &agreed(&[])).await;
    pair.initiator.queue_pair().stop_serving_reads();
    let opened = Opened {
        data_out: vec![1; 512],
        ..Opened::default()
    };
    pair.initiator.command(command(5, 512, false), &[], opened);
    pair.begin().await;
    pair.mover.get_data(get(5, 0, 512, 0, &pair.pool));
    assert!(timeout(Duration::ZERO, pair.notify()).await.is_err());
    assert_eq!(pair.mover.queued_bytes(), 0, "its task waits for it");
    pair.mover.release_task(Itt(5));
    let progress = pair.mover.progress();
    for itt in 10..20 {
        pair.mover.send_control(pong(itt), Bytes::new());
        pair.answer().await;
        assert!(timeout(Duration::ZERO, pair.notify()).await.is_err());
        assert_eq!(
            (pair.mover.queued_bytes(), pair.mover.progress()),
            (512, progress)
        );
    }
    assert_eq!(
        pair.pool.stats().in_use,
        4096,
        "the device may still write into it"
    );
    drop(pair.mover);
    assert_eq!(pair.pool.stats().in_use, 0);
}

/// Messages, more than are answered while no answer is taken.
const FLOOD: u32 = 4000;
