//! Whose memory is when: over a device that does what the test says.

use backstores::BufPool;
use rdma_sys::ibv_transport_type;

use super::super::fake::{fake, request};
use super::*;
use crate::fabric::Region;

const DEPTHS: Depths = Depths { send: 8, receive: 8 };
const ROCE: ibv_transport_type::Type = ibv_transport_type::IBV_TRANSPORT_IB;

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
