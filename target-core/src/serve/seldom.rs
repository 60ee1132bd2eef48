//! [`Seldom`]: what a session waits for all its life and hardly ever hears: orders, and connections that join. Both wake
//! their own place in a set. So a turn of the loop looks whether anything woke, and not at each of them.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{mpsc, watch};

use crate::iscsi::{Joining, Order};

/// What is waited for.
#[derive(Debug)]
pub(super) struct Seldom {
    waits: FuturesUnordered<Wait>,
}

/// Something happened that seldom does.
#[derive(Debug)]
pub(super) enum Happening {
    /// Somebody outside orders something.
    Order(Order),
    /// A connection comes through the door.
    Arrival(Joining),
}

/// Gives back whom it waited for; nothing once there is nobody left to speak.
type Wait = Pin<Box<dyn Future<Output = Option<Heard>> + Send>>;

enum Heard {
    Order(watch::Receiver<Option<Order>>),
    Arrival(Joining, mpsc::UnboundedReceiver<Joining>),
}

impl Seldom {
    pub(super) fn new(orders: watch::Receiver<Option<Order>>) -> Self {
        let waits = FuturesUnordered::new();
        waits.push(next_order(orders));
        Self { waits }
    }

    /// There is a session, which others may join.
    pub(super) fn await_arrivals(&self, arrivals: mpsc::UnboundedReceiver<Joining>) {
        self.waits.push(next_arrival(arrivals));
    }

    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Happening> {
        while let Poll::Ready(Some(heard)) = self.waits.poll_next_unpin(cx) {
            match heard {
                Some(Heard::Order(mut orders)) => {
                    let order = *orders.borrow_and_update();
                    self.waits.push(next_order(orders));
                    if let Some(order) = order {
                        return Poll::Ready(Happening::Order(order));
                    }
                }
                Some(Heard::Arrival(joining, arrivals)) => {
                    self.waits.push(next_arrival(arrivals));
                    return Poll::Ready(Happening::Arrival(joining));
                }
                None => {}
            }
        }
        Poll::Pending
    }
}

fn next_order(mut orders: watch::Receiver<Option<Order>>) -> Wait {
    Box::pin(async move { orders.changed().await.is_ok().then_some(Heard::Order(orders)) })
}

fn next_arrival(mut arrivals: mpsc::UnboundedReceiver<Joining>) -> Wait {
    Box::pin(async move {
        let joining = arrivals.recv().await?;
        Some(Heard::Arrival(joining, arrivals))
    })
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use futures_util::FutureExt;

    use super::*;

    fn next(seldom: &mut Seldom) -> Option<Happening> {
        poll_fn(|cx| seldom.poll_next(cx)).now_or_never()
    }

    #[tokio::test]
    async fn each_order_is_heard_once_and_only_the_last_of_several() {
        let (orders, heard) = watch::channel(None);
        let mut seldom = Seldom::new(heard);
        assert!(next(&mut seldom).is_none());
        orders.send_replace(Some(Order::Close));
        assert!(matches!(next(&mut seldom), Some(Happening::Order(Order::Close))));
        assert!(next(&mut seldom).is_none());
        orders.send_replace(Some(Order::Close));
        orders.send_replace(Some(Order::Reinstated));
        assert!(matches!(
            next(&mut seldom),
            Some(Happening::Order(Order::Reinstated))
        ));
        assert!(next(&mut seldom).is_none());
    }

    #[tokio::test]
    async fn whoever_will_not_speak_again_leaves_the_others_heard() {
        let (orders, heard) = watch::channel(None);
        let (door, arrivals) = mpsc::unbounded_channel();
        let mut seldom = Seldom::new(heard);
        seldom.await_arrivals(arrivals);
        drop(door);
        assert!(next(&mut seldom).is_none());
        orders.send_replace(Some(Order::Close));
        assert!(matches!(next(&mut seldom), Some(Happening::Order(Order::Close))));
        drop(orders);
        assert!(next(&mut seldom).is_none());
    }
}
