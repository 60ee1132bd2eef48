//! The structures that we share with rdma-core's C libraries, held against the C headers of this system: sizes, places of
//! fields, constants. Those with unions are written by hand in the bindings, so nothing else would notice.
#![cfg(feature = "verbs")]

use std::fmt::Write as _;
use std::mem::{offset_of, size_of};
use std::process::Command;

use rdma_sys::*;

macro_rules! layouts {
    ($($ty:ident { $($rust:ident $(. $more:ident)* = $c:literal),* $(,)? })*) => {
        fn layouts() -> Vec<(String, usize)> {
            vec![$(
                (concat!("sizeof(struct ", stringify!($ty), ")").to_owned(), size_of::<$ty>()),
                $((
                    concat!("offsetof(struct ", stringify!($ty), ", ", $c, ")").to_owned(),
                    offset_of!($ty, $rust $(. $more)*),
                ),)*
            )*]
        }
    };
}

layouts! {
    ibv_context { device = "device", ops = "ops", cmd_fd = "cmd_fd", async_fd = "async_fd" }
    ibv_context_ops { poll_cq = "poll_cq", req_notify_cq = "req_notify_cq", post_send = "post_send", post_recv = "post_recv" }
    ibv_device { transport_type = "transport_type", name = "name" }
    ibv_device_attr {
        max_qp_wr = "max_qp_wr", device_cap_flags = "device_cap_flags", max_cqe = "max_cqe",
        max_qp_init_rd_atom = "max_qp_init_rd_atom",
    }
    ibv_mr { lkey = "lkey", rkey = "rkey" }
    ibv_comp_channel { fd = "fd" }
    ibv_cq { context = "context" }
    ibv_qp { context = "context", qp_num = "qp_num" }
    ibv_qp_cap {
        max_send_wr = "max_send_wr", max_recv_wr = "max_recv_wr", max_send_sge = "max_send_sge",
        max_recv_sge = "max_recv_sge", max_inline_data = "max_inline_data",
    }
    ibv_qp_init_attr {
        send_cq = "send_cq", recv_cq = "recv_cq", srq = "srq", cap = "cap", qp_type = "qp_type", sq_sig_all = "sq_sig_all",
    }
    ibv_sge { addr = "addr", length = "length", lkey = "lkey" }
    ibv_send_wr {
        wr_id = "wr_id", next = "next", sg_list = "sg_list", num_sge = "num_sge", opcode = "opcode",
        send_flags = "send_flags", imm_data_invalidated_rkey_union = "invalidate_rkey",
        wr.rdma.remote_addr = "wr.rdma.remote_addr", wr.rdma.rkey = "wr.rdma.rkey", qp_type = "qp_type",
    }
    ibv_recv_wr { wr_id = "wr_id", next = "next", sg_list = "sg_list", num_sge = "num_sge" }
    ibv_wc {
        wr_id = "wr_id", status = "status", opcode = "opcode", vendor_err = "vendor_err", byte_len = "byte_len",
        imm_data_invalidated_rkey_union = "invalidated_rkey", qp_num = "qp_num", wc_flags = "wc_flags",
    }
    rdma_event_channel { fd = "fd" }
    rdma_cm_id { verbs = "verbs", channel = "channel", qp = "qp", route = "route", ps = "ps", port_num = "port_num" }
    rdma_route { addr = "addr" }
    rdma_addr { src_addr_union = "src_addr", dst_addr_union = "dst_addr" }
    rdma_cm_event { id = "id", listen_id = "listen_id", event = "event", status = "status", param = "param" }
    rdma_conn_param {
        private_data = "private_data", private_data_len = "private_data_len",
        responder_resources = "responder_resources", initiator_depth = "initiator_depth",
        retry_count = "retry_count", rnr_retry_count = "rnr_retry_count", srq = "srq", qp_num = "qp_num",
    }
}

fn constants() -> Vec<(&'static str, i64)> {
    use rdma_cm_event_type::*;
    vec![
        (
            "IBV_ACCESS_LOCAL_WRITE",
            ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0.into(),
        ),
        (
            "IBV_ACCESS_REMOTE_WRITE",
            ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0.into(),
        ),
        (
            "IBV_DEVICE_MEM_MGT_EXTENSIONS",
            ibv_device_cap_flags::IBV_DEVICE_MEM_MGT_EXTENSIONS.0.into(),
        ),
        ("IBV_QPT_RC", ibv_qp_type::IBV_QPT_RC.into()),
        ("IBV_SEND_SIGNALED", ibv_send_flags::IBV_SEND_SIGNALED.0.into()),
        (
            "IBV_TRANSPORT_IWARP",
            ibv_transport_type::IBV_TRANSPORT_IWARP.into(),
        ),
        ("IBV_WC_SUCCESS", ibv_wc_status::IBV_WC_SUCCESS.into()),
        ("IBV_WC_WR_FLUSH_ERR", ibv_wc_status::IBV_WC_WR_FLUSH_ERR.into()),
        ("IBV_WR_RDMA_READ", ibv_wr_opcode::IBV_WR_RDMA_READ.into()),
        ("IBV_WR_RDMA_WRITE", ibv_wr_opcode::IBV_WR_RDMA_WRITE.into()),
        ("IBV_WR_SEND", ibv_wr_opcode::IBV_WR_SEND.into()),
        ("IBV_WR_SEND_WITH_INV", ibv_wr_opcode::IBV_WR_SEND_WITH_INV.into()),
        ("RDMA_CM_EVENT_ADDR_CHANGE", RDMA_CM_EVENT_ADDR_CHANGE.into()),
        ("RDMA_CM_EVENT_CONNECT_ERROR", RDMA_CM_EVENT_CONNECT_ERROR.into()),
        (
            "RDMA_CM_EVENT_CONNECT_REQUEST",
            RDMA_CM_EVENT_CONNECT_REQUEST.into(),
        ),
        (
            "RDMA_CM_EVENT_DEVICE_REMOVAL",
            RDMA_CM_EVENT_DEVICE_REMOVAL.into(),
        ),
        ("RDMA_CM_EVENT_DISCONNECTED", RDMA_CM_EVENT_DISCONNECTED.into()),
        ("RDMA_CM_EVENT_REJECTED", RDMA_CM_EVENT_REJECTED.into()),
        ("RDMA_CM_EVENT_TIMEWAIT_EXIT", RDMA_CM_EVENT_TIMEWAIT_EXIT.into()),
        ("RDMA_CM_EVENT_UNREACHABLE", RDMA_CM_EVENT_UNREACHABLE.into()),
        ("RDMA_PS_TCP", rdma_port_space::RDMA_PS_TCP.into()),
    ]
}

#[test]
fn layouts_and_constants_are_those_of_the_c_headers() {
    let mut ours: Vec<(String, i64)> = layouts()
        .into_iter()
        .map(|(expression, value)| (expression, i64::try_from(value).unwrap()))
        .collect();
    ours.extend(
        constants()
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value)),
    );

    let mut program =
        "#include <stddef.h>\n#include <stdio.h>\n#include <rdma/rdma_cma.h>\nint main(void) {\n".to_owned();
    for (expression, _) in &ours {
        writeln!(program, "printf(\"%lld\\n\", (long long)({expression}));").unwrap();
    }
    program.push_str("return 0; }\n");
    let directory = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (source, binary) = (directory.join("layout.c"), directory.join("layout"));
    std::fs::write(&source, program).unwrap();
    let compiled = Command::new("cc")
        .arg(&source)
        .arg("-o")
        .arg(&binary)
        .output()
        .unwrap();
    assert!(
        compiled.status.success(),
        "{}",
        String::from_utf8_lossy(&compiled.stderr)
    );
    let output = Command::new(&binary).output().unwrap();
    let theirs: Vec<i64> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| line.parse().unwrap())
        .collect();
    assert_eq!(theirs.len(), ours.len());
    let differ = |((expression, ours), theirs): (&(String, i64), &i64)| {
        (ours != theirs).then(|| format!("{expression}: {ours} here, {theirs} in C"))
    };
    let different: Vec<_> = ours.iter().zip(&theirs).filter_map(differ).collect();
    assert!(different.is_empty(), "\n{}", different.join("\n"));
}
