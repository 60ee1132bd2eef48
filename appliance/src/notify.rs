//! What systemd is told (sd_notify); nothing happens without it.

use std::time::Duration;

use sd_notify::NotifyState;

/// Everything is served.
pub(crate) fn ready() {
    send(&[NotifyState::Ready]);
}

/// The stop has begun.
pub(crate) fn stopping() {
    send(&[NotifyState::Stopping]);
}

/// Still flushing: do not kill us yet.
pub(crate) fn extend(patience: Duration) {
    let micros = u32::try_from(patience.as_micros()).unwrap_or(u32::MAX);
    send(&[NotifyState::ExtendTimeoutUsec(micros)]);
}

fn send(states: &[NotifyState<'_>]) {
    // Without systemd there is nobody to tell, and a failure to tell is no reason to do anything else.
    drop(sd_notify::notify(false, states));
}
