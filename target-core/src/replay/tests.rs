//! What is kept, for how long, and what comes back.

use backstores::IoBuf;

use super::*;

const RULES: ReplayRules = ReplayRules {
    max_data_len: 1000,
    max_burst_len: 2500,
};

fn replay() -> Replay {
    Replay::new(RULES)
}

fn put(itt: u32, offset: u32, len: usize) -> PutData {
    let mut buf = IoBuf::from_heap(len);
    for (byte, at) in buf.iter_mut().zip(offset..) {
        *byte = u8::try_from(at % 251).unwrap();
    }
    PutData {
        itt: Itt(itt),
        lun: Lun::ZERO,
        offset,
        buf,
        last: None,
        numbering: Numbering::default(),
        budget: None,
    }
}

/// DataSN, offset, length, F and A of each.
fn shape(segments: &[Segment]) -> Vec<(u32, u32, usize, bool, bool)> {
    let shape = |Segment { header, data }: &Segment| {
        let DataIn {
            data_sn,
            offset,
            is_final,
            acknowledge,
            ..
        } = *header;
        (data_sn, offset, data.len(), is_final, acknowledge)
    };
    segments.iter().map(shape).collect()
}

#[test]
fn data_are_cut_within_limits_and_acknowledgement_asked_for_once_in_a_burst() {
    let mut replay = replay();
    let sent = replay.send(&put(1, 0, 3000));
    assert_eq!(
        shape(&sent),
        [
            (0, 0, 1000, false, false),
            (1, 1000, 1000, false, false),
            (2, 2000, 500, true, true),
            (3, 2500, 500, true, false)
        ]
    );
    let more = replay.send(&put(1, 3000, 1000));
    assert_eq!(shape(&more), [(4, 3000, 1000, true, false)]);
}

#[test]
fn what_was_sent_comes_again_exactly_but_for_the_window_of_now() {
    let mut replay = replay();
    let sent = replay.send(&put(1, 0, 3000));
    let now = Numbering {
        max_cmd_sn: iscsi_proto::Sn(9),
        ..Numbering::default()
    };
    let again = replay.again(Itt(1), 1, 2, now).unwrap();
    assert_eq!(shape(&again), shape(&sent[1..3]));
    assert_eq!(again[0].data, sent[1].data);
    assert_eq!(again[0].header.max_cmd_sn, now.max_cmd_sn);
    let all = replay.again(Itt(1), 0, 0, now).unwrap();
    assert_eq!(all.len(), 4);
}

#[test]
fn what_was_never_sent_or_is_acknowledged_does_not_come() {
    let mut replay = replay();
    let sent = replay.send(&put(1, 0, 3000));
    let now = Numbering::default();
    let again = |replay: &Replay, begin, count| {
        let again = replay.again(Itt(1), begin, count, now);
        again.map(|segments| segments.len())
    };
    assert_eq!(again(&replay, 3, 2), Err(Unsent::Unknown));
    assert!(replay.acknowledge(sent[2].header.ttt, 3));
    assert_eq!(again(&replay, 2, 1), Err(Unsent::Unknown));
    assert_eq!(again(&replay, 0, 0), Ok(1));
    replay.forget(Itt(1));
    assert_eq!(again(&replay, 3, 1), Err(Unsent::Unknown));
    assert_eq!(replay.kept, 0);
}

#[test]
fn an_acknowledgement_must_be_of_something_that_was_sent() {
    let mut replay = replay();
    let sent = replay.send(&put(1, 0, 3000));
    assert!(!replay.acknowledge(Ttt(77), 1));
    assert!(!replay.acknowledge(Ttt::RESERVED, 1));
    assert!(!replay.acknowledge(sent[2].header.ttt, 5));
    assert!(replay.acknowledge(sent[2].header.ttt, 4));
}

#[test]
fn what_is_too_much_to_keep_is_let_go_of_from_the_front() {
    let mut replay = replay();
    let mut offset = 0;
    for _ in 0..20 {
        replay.send(&put(1, offset, 256 * 1024));
        offset += 256 * 1024;
    }
    assert!(replay.kept <= KEPT_MAX);
    let now = Numbering::default();
    assert_eq!(
        replay.again(Itt(1), 0, 1, now).map(|segments| segments.len()),
        Err(Unsent::NotKept)
    );
    let last = replay.sent(Itt(1)) - 1;
    assert_eq!(replay.again(Itt(1), last, 1, now).unwrap().len(), 1);
}

#[test]
fn data_are_cut_anew_from_the_first_that_is_not_acknowledged() {
    let mut replay = replay();
    let sent = replay.send(&put(1, 0, 3000));
    replay.end(Itt(1), 0);
    assert!(replay.acknowledge(sent[2].header.ttt, 1));
    replay.set_rules(ReplayRules {
        max_data_len: 512,
        ..RULES
    });
    let anew = replay.cut_anew(Itt(1), 5, Numbering::default()).unwrap();
    let lens: Vec<_> = shape(&anew)
        .iter()
        .map(|(sn, offset, len, ..)| (*sn, *offset, *len))
        .collect();
    assert_eq!(
        lens,
        [(1, 1000, 512), (2, 1512, 512), (3, 2024, 512), (4, 2536, 464)]
    );
    let task = &replay.tasks[&1];
    assert_eq!((task.exp_data_sn, task.snack_tag), (Some(5), 5));
    let joined: Vec<u8> = anew.iter().flat_map(|segment| segment.data.to_vec()).collect();
    assert_eq!(joined, put(1, 1000, 2000).buf.to_vec());
}

#[test]
fn another_connection_goes_on_where_the_initiator_says() {
    let mut old = replay();
    old.send(&put(1, 0, 3000));
    let mut new = replay();
    let rest = new.adopt(Itt(1), old.surrender(Itt(1)), 3, Numbering::default());
    assert_eq!(shape(&rest.unwrap()), [(3, 2500, 500, true, false)]);
    assert_eq!((old.kept, new.kept), (0, 3000));
    let more = new.send(&put(1, 3000, 100));
    assert_eq!(more[0].header.data_sn, 4);
}
