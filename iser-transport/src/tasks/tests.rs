//! Places of data, and data that come unasked.

use backstores::IoBuf;
use iscsi_proto::pdu::{Request, TaskAttribute};
use iscsi_proto::{Lun, Sn};
use target_core::datamover::Numbering;

use super::*;

const PLACE: Remote = Remote { stag: 5, at: 0x1000 };

fn command(is_final: bool) -> ScsiCommand {
    ScsiCommand {
        immediate: false,
        is_final,
        read: false,
        write: true,
        attribute: TaskAttribute::Simple,
        priority: 0,
        lun: Lun::ZERO,
        itt: Itt(1),
        expected_len: 4096,
        cmd_sn: Sn(1),
        exp_stat_sn: Sn(1),
        cdb: [0; 16],
    }
}

fn tasks(solicited_only: bool, is_final: bool, immediate_len: usize) -> Tasks {
    let mut tasks = Tasks::default();
    tasks.set_rules(Rules {
        first_burst_len: 2048,
        solicited_only,
    });
    tasks
        .begin(&command(is_final), None, Some(PLACE), immediate_len)
        .unwrap();
    tasks
}

fn get(offset: u32, len: usize, filled: usize) -> GetData {
    GetData {
        itt: Itt(1),
        lun: Lun::ZERO,
        offset,
        buf: IoBuf::from_heap(len),
        filled,
        numbering: Numbering::default(),
    }
}

fn send(tasks: &mut Tasks, data_sn: u32, offset: u32, data: &[u8], is_final: bool) {
    let pdu = DataOut {
        is_final,
        lun: Lun::ZERO,
        itt: Itt(1),
        ttt: Ttt::RESERVED,
        exp_stat_sn: Sn(1),
        data_sn,
        offset,
    };
    let bhs = Request::DataOut(pdu.clone()).encode();
    tasks.data_out(&bhs, &pdu, data);
}

fn fetched(tasks: &mut Tasks) -> (usize, Remote) {
    match tasks.next_effect() {
        Some(Effect::Fetch(get, from)) => (get.filled, from),
        other => panic!("nothing is fetched but {other:?}"),
    }
}

fn told(tasks: &mut Tasks) -> Notify {
    match tasks.next_effect() {
        Some(Effect::Tell(notify)) => notify,
        other => panic!("nothing is told but {other:?}"),
    }
}

#[test]
fn the_place_of_data_begins_where_the_initiator_says() {
    let mut whole = tasks(false, true, 512);
    whole.get(get(0, 4096, 512));
    assert_eq!(fetched(&mut whole), (512, PLACE.plus(512)));
    let mut solicited = tasks(true, true, 512);
    solicited.get(get(0, 4096, 512));
    assert_eq!(fetched(&mut solicited), (512, PLACE));
}

#[test]
fn unsolicited_data_serve_the_wish_and_the_rest_is_fetched() {
    let mut tasks = tasks(true, false, 512);
    tasks.get(get(0, 4096, 512));
    assert!(tasks.next_effect().is_none(), "data still come by themselves");
    send(&mut tasks, 0, 512, &[1; 1000], false);
    assert!(matches!(told(&mut tasks), Notify::Unsolicited { .. }));
    send(&mut tasks, 1, 1512, &[2; 500], true);
    assert!(matches!(told(&mut tasks), Notify::Unsolicited { .. }));
    match tasks.next_effect() {
        Some(Effect::Fetch(get, from)) => {
            assert_eq!((get.filled, from), (2012, PLACE));
            assert_eq!(
                (get.buf[512], get.buf[1511], get.buf[1512], get.buf[2011]),
                (1, 1, 2, 2)
            );
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn data_that_break_a_rule_fail_the_command_with_the_standards_sense() {
    for (data_sn, offset, len, sense) in [
        (1, 0, 10, Sense::DATA_PHASE_ERROR),
        (0, 4, 10, Sense::DATA_PHASE_ERROR),
        (0, 0, 2049, Sense::UNEXPECTED_UNSOLICITED_DATA),
    ] {
        let mut tasks = tasks(false, false, 0);
        send(&mut tasks, data_sn, offset, &vec![0; len], true);
        tasks.get(get(0, 4096, 0));
        assert!(matches!(told(&mut tasks), Notify::DataOut { result: Err(told), .. } if told == sense));
    }
}

#[test]
fn a_command_that_named_no_place_gets_no_data() {
    let mut tasks = Tasks::default();
    tasks.begin(&command(true), None, None, 0).unwrap();
    tasks.get(get(0, 4096, 0));
    assert!(matches!(
        told(&mut tasks),
        Notify::DataOut {
            result: Err(Sense::NOT_ENOUGH_UNSOLICITED_DATA),
            ..
        }
    ));
}

#[test]
fn unsolicited_data_of_a_command_that_ended_are_swallowed_and_others_are_stray() {
    let mut tasks = tasks(false, false, 0);
    tasks.forget(Itt(1));
    send(&mut tasks, 0, 0, &[0; 10], false);
    send(&mut tasks, 1, 10, &[0; 10], true);
    assert!(tasks.next_effect().is_none());
    send(&mut tasks, 0, 0, &[0; 10], true);
    assert!(matches!(told(&mut tasks), Notify::OutOfPlace { .. }));
}

#[test]
fn unfinished_commands_are_bounded() {
    let mut tasks = Tasks::default();
    for itt in 0..u32::try_from(TASKS_MAX).unwrap() {
        let pdu = ScsiCommand {
            itt: Itt(itt),
            ..command(true)
        };
        tasks.begin(&pdu, None, None, 0).unwrap();
    }
    assert_eq!(tasks.begin(&command(true), None, None, 0), Err(TooManyTasks));
}

#[test]
fn a_tag_that_is_in_use_does_no_harm_to_the_command_that_has_it() {
    let mut tasks = tasks(true, false, 4);
    tasks.get(get(0, 8, 4));
    let other = Remote { stag: 9, at: 0 };
    tasks.begin(&command(true), Some(other), Some(other), 0).unwrap();
    send(&mut tasks, 0, 4, &[7; 4], true);
    assert!(matches!(
        tasks.next_effect(),
        Some(Effect::Tell(Notify::Unsolicited { .. }))
    ));
    let Some(Effect::Tell(Notify::DataOut { result: Ok(buf), .. })) = tasks.next_effect() else {
        panic!("the data it waited for")
    };
    assert_eq!(buf[4..], [7; 4]);
    assert_eq!(tasks.tag(Itt(1)), Some(PLACE.stag));
}
