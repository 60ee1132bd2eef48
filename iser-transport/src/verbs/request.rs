//! Work in the words of a device: its opcode, the peer's memory, and whether its end is told. Pure; where its own memory is,
//! whoever posts it adds.

use rdma_sys::{ibv_send_flags, ibv_send_wr, ibv_wr_opcode};

use crate::fabric::{Work, WorkId};

/// The request for `work`, and where in its buffer it begins. With `signals_each` its end is told in any case; otherwise
/// where somebody waits for it: that of anything but what is read is not urgent.
pub(super) fn request_of(id: WorkId, work: &Work, signals_each: bool) -> (ibv_send_wr, usize) {
    // SAFETY: zeroes are a valid value of this plain structure.
    let mut request: ibv_send_wr = unsafe { std::mem::zeroed() };
    request.wr_id = id.0;
    request.num_sge = 1;
    let (at, remote) = match work {
        Work::Send { invalidate: None, .. } => {
            request.opcode = ibv_wr_opcode::IBV_WR_SEND;
            (0, None)
        }
        Work::Send {
            invalidate: Some(stag),
            ..
        } => {
            request.opcode = ibv_wr_opcode::IBV_WR_SEND_WITH_INV;
            request.imm_data_invalidated_rkey_union.invalidated_rkey = *stag;
            // The library for soft-iWARP takes the tag that is to become invalid from here; all others look there for the
            // tags of reads and writes alone.
            request.wr.rdma.rkey = *stag;
            (0, None)
        }
        Work::Write { to, .. } => {
            request.opcode = ibv_wr_opcode::IBV_WR_RDMA_WRITE;
            (0, Some(to))
        }
        Work::Read { from, at, .. } => {
            request.opcode = ibv_wr_opcode::IBV_WR_RDMA_READ;
            (*at, Some(from))
        }
    };
    if let Some(remote) = remote {
        request.wr.rdma.remote_addr = remote.at;
        request.wr.rdma.rkey = remote.stag;
    }
    if signals_each || matches!(work, Work::Read { .. }) {
        request.send_flags = SIGNALLED;
    }
    (request, at)
}

/// Work has a completion of its own.
pub(super) const SIGNALLED: u32 = ibv_send_flags::IBV_SEND_SIGNALED.0;

#[cfg(test)]
mod tests {
    use backstores::IoBuf;

    use super::*;
    use crate::fabric::Remote;

    fn send(invalidate: Option<u32>) -> Work {
        Work::Send {
            buf: IoBuf::from_heap(8),
            invalidate,
        }
    }

    fn write() -> Work {
        Work::Write {
            buf: IoBuf::from_heap(8),
            to: Remote { stag: 7, at: 0x1000 },
        }
    }

    fn read() -> Work {
        Work::Read {
            buf: IoBuf::from_heap(8),
            at: 3,
            from: Remote { stag: 9, at: 0x2000 },
        }
    }

    #[test]
    fn a_tag_that_is_to_become_invalid_is_where_either_kind_of_library_looks() {
        let (request, _) = request_of(WorkId(5), &send(Some(0x1234)), false);
        // IBV_WR_SEND_WITH_INV
        assert_eq!((request.wr_id, request.opcode), (5, 9));
        // SAFETY: each field was set, as for this opcode.
        unsafe {
            assert_eq!(request.imm_data_invalidated_rkey_union.invalidated_rkey, 0x1234);
            assert_eq!(request.wr.rdma.rkey, 0x1234);
        }
        // IBV_WR_SEND
        assert_eq!(request_of(WorkId(5), &send(None), false).0.opcode, 2);
    }

    #[test]
    fn reads_and_writes_name_the_place_in_the_peers_memory() {
        for (work, opcode, start, place) in [(write(), 0, 0, (7, 0x1000)), (read(), 4, 3, (9, 0x2000))] {
            let (request, at) = request_of(WorkId(1), &work, false);
            assert_eq!((request.opcode, at), (opcode, start));
            // SAFETY: set for both opcodes.
            let rdma = unsafe { request.wr.rdma };
            assert_eq!((rdma.rkey, rdma.remote_addr), place);
        }
    }

    #[test]
    fn only_reads_are_signalled_unless_all_are() {
        let flags = |work: Work, each| request_of(WorkId(1), &work, each).0.send_flags;
        assert_eq!(
            [send(None), write(), read()].map(|work| flags(work, false)),
            [0, 0, 2]
        );
        assert_eq!(
            [send(None), write(), read()].map(|work| flags(work, true)),
            [2, 2, 2]
        );
    }
}
