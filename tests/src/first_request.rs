//! The Login Request of an initiator that proves nothing and goes straight to full feature phase.

use iscsi_proto::pdu::{LoginRequest, LoginStage, Request};
use iscsi_proto::{Cid, Isid, Itt, Sn, Tsih};

/// For a new session, or another connection of the one that `tsih` names. Initiators differ in the last byte of their ISID.
#[must_use]
pub fn first_request(initiator: u8, (tsih, cid): (Tsih, u16), (cmd_sn, exp_stat_sn): (Sn, Sn)) -> Request {
    Request::Login(LoginRequest {
        transit: true,
        continues: false,
        current_stage: LoginStage::Operational,
        next_stage: LoginStage::FullFeature,
        version_max: 0,
        version_min: 0,
        isid: Isid([0x80, 0, 0, 0, 0, initiator]),
        tsih,
        itt: Itt(1),
        cid: Cid(cid),
        cmd_sn,
        exp_stat_sn,
    })
}
