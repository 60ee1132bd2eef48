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
