//! Data-Out as scripts of PDUs.

use iscsi_proto::pdu::{DataOut, Request, TaskAttribute};
use iscsi_proto::{BHS_LEN, Lun, Sn};

use super::arrival::ABANDONED_MAX;
use super::*;
use crate::datamover::Numbering;

const RULES: OutRules = OutRules {
    max_burst_len: 1024,
    first_burst_len: 2048,
    max_outstanding_r2t: 2,
    recovers: false,
};

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

fn command(expected_len: u32) -> ScsiCommand {
    ScsiCommand {
        immediate: false,
        is_final: false,
        read: false,
        write: true,
        attribute: TaskAttribute::Simple,
        priority: 0,
        lun: Lun::ZERO,
        itt: Itt(1),
        expected_len,
        cmd_sn: Sn(1),
        exp_stat_sn: Sn(1),
        cdb: [0; 16],
    }
}

/// Sends one Data-Out full of `fill`.
fn send(book: &mut DataOutBook, ttt: Ttt, data_sn: u32, offset: u32, len: usize, is_final: bool, fill: u8) {
    let pdu = DataOut {
        is_final,
        lun: Lun::ZERO,
        itt: Itt(1),
        ttt,
        exp_stat_sn: Sn(1),
        data_sn,
        offset,
    };
    let bhs: [u8; BHS_LEN] = Request::DataOut(pdu.clone()).encode();
    let place = book.header(&bhs, &pdu, len).unwrap();
    let buf = place.map(|mut place| {
        place.buf[place.at..place.at + len].fill(fill);
        place.buf
    });
    book.landed(buf, true);
}

fn r2t(book: &mut DataOutBook) -> R2t {
    match book.next_effect() {
        Some(Effect::Send(r2t)) => r2t,
        other => panic!("no R2T but {other:?}"),
    }
}

fn told(book: &mut DataOutBook) -> Notify {
    match book.next_effect() {
        Some(Effect::Tell(notify)) => notify,
        other => panic!("nothing told but {other:?}"),
    }
}

#[test]
fn a_wish_becomes_r2ts_within_burst_and_outstanding_limits() {
    let mut book = DataOutBook::new(RULES);
    book.get(get(4096, 2560, 100));
    let first = r2t(&mut book);
    assert_eq!((first.offset, first.desired_len, first.r2t_sn), (4196, 1024, 0));
    let second = r2t(&mut book);
    assert_eq!(
        (second.offset, second.desired_len, second.r2t_sn),
        (5220, 1024, 1)
    );
    assert!(book.next_effect().is_none());

    send(&mut book, first.ttt, 0, 4196, 1000, false, 1);
    send(&mut book, first.ttt, 1, 5196, 24, true, 2);
    let third = r2t(&mut book);
    assert_eq!((third.offset, third.desired_len, third.r2t_sn), (6244, 412, 2));
    send(&mut book, second.ttt, 0, 5220, 1024, true, 3);
    send(&mut book, third.ttt, 0, 6244, 412, true, 4);
    let Notify::DataOut { result: Ok(buf), .. } = told(&mut book) else {
        panic!()
    };
    assert_eq!((buf[100], buf[1100], buf[1124], buf[2559]), (1, 2, 3, 4));
    assert_eq!(book.r2ts_sent(Itt(1)), 3);
}

#[test]
fn unsolicited_data_serve_the_wish_and_the_rest_is_asked_for() {
    let mut book = DataOutBook::new(RULES);
    book.begin_command(&command(4000), 512);
    book.get(get(0, 4000, 512));
    assert!(
        book.next_effect().is_none(),
        "nothing is asked for while data still come by themselves"
    );
    send(&mut book, Ttt::RESERVED, 0, 512, 1000, false, 1);
    send(&mut book, Ttt::RESERVED, 1, 1512, 536, true, 2);
    assert!(matches!(told(&mut book), Notify::Unsolicited { .. }));
    assert!(matches!(told(&mut book), Notify::Unsolicited { .. }));
    let first = r2t(&mut book);
    assert_eq!((first.offset, first.desired_len), (2048, 1024));
}

#[test]
fn broken_rules_fail_the_command_with_the_standards_sense() {
    for (data_sn, offset, len, is_final, sense) in [
        (1, 0, 1024, true, Sense::DATA_PHASE_ERROR),
        (0, 4, 1020, true, Sense::DATA_PHASE_ERROR),
        (0, 0, 1025, true, Sense::NOT_ENOUGH_UNSOLICITED_DATA),
        (0, 0, 1000, true, Sense::NOT_ENOUGH_UNSOLICITED_DATA),
    ] {
        let mut book = DataOutBook::new(RULES);
        book.get(get(0, 1024, 0));
        let r2t = r2t(&mut book);
        send(&mut book, r2t.ttt, data_sn, offset, len, is_final, 0);
        let Notify::DataOut {
            result: Err(told), ..
        } = told(&mut book)
        else {
            panic!()
        };
        assert_eq!(told, sense);
        assert!(book.r2ts.is_empty(), "the F bit ended the sequence");
    }
}

#[test]
fn unsolicited_data_beyond_first_burst_are_refused() {
    let mut book = DataOutBook::new(RULES);
    book.begin_command(&command(4000), 0);
    send(&mut book, Ttt::RESERVED, 0, 0, 2049, true, 0);
    book.get(get(0, 4000, 0));
    let Notify::DataOut {
        result: Err(sense), ..
    } = told(&mut book)
    else {
        panic!()
    };
    assert_eq!(sense, Sense::UNEXPECTED_UNSOLICITED_DATA);
}

#[test]
fn release_waits_until_the_initiator_has_finished_and_swallows_what_comes() {
    let mut book = DataOutBook::new(RULES);
    book.get(get(0, 1024, 0));
    let r2t = r2t(&mut book);
    book.release(Itt(1));
    assert!(book.next_effect().is_none());
    send(&mut book, r2t.ttt, 0, 0, 512, false, 0);
    assert!(book.next_effect().is_none());
    send(&mut book, r2t.ttt, 1, 512, 512, true, 0);
    assert!(matches!(told(&mut book), Notify::Released(Itt(1))));
    assert!(book.r2ts.is_empty());
}

#[test]
fn release_while_a_payload_is_landing_keeps_the_buffer_sound() {
    let mut book = DataOutBook::new(RULES);
    book.get(get(0, 1024, 0));
    let r2t = r2t(&mut book);
    let pdu = DataOut {
        is_final: true,
        lun: Lun::ZERO,
        itt: Itt(1),
        ttt: r2t.ttt,
        exp_stat_sn: Sn(1),
        data_sn: 0,
        offset: 0,
    };
    let place = book
        .header(&Request::DataOut(pdu.clone()).encode(), &pdu, 1024)
        .unwrap();
    book.release(Itt(1));
    book.landed(place.map(|place| place.buf), true);
    assert!(matches!(told(&mut book), Notify::Released(Itt(1))));
}

#[test]
fn data_for_nothing_we_know_are_stray() {
    let mut book = DataOutBook::new(RULES);
    send(&mut book, Ttt(9), 0, 0, 16, true, 0);
    assert!(matches!(told(&mut book), Notify::OutOfPlace { .. }));
    send(&mut book, Ttt::RESERVED, 0, 0, 16, true, 0);
    assert!(matches!(told(&mut book), Notify::OutOfPlace { .. }));
}

#[test]
fn unsolicited_data_of_a_command_that_ended_early_are_swallowed() {
    let mut book = DataOutBook::new(RULES);
    book.begin_command(&command(2000), 0);
    book.end(Itt(1));
    send(&mut book, Ttt::RESERVED, 0, 0, 1000, false, 0);
    send(&mut book, Ttt::RESERVED, 1, 1000, 1000, true, 0);
    assert!(book.next_effect().is_none());
    assert!(book.swallowed.is_empty());
}

#[test]
fn abandoned_sequences_are_bounded() {
    let mut book = DataOutBook::new(RULES);
    for itt in 0..=u32::try_from(ABANDONED_MAX).unwrap() {
        book.begin_command(
            &ScsiCommand {
                itt: Itt(itt),
                ..command(2000)
            },
            0,
        );
        book.end(Itt(itt));
    }
    let pdu = DataOut {
        is_final: true,
        lun: Lun::ZERO,
        itt: Itt(1),
        ttt: Ttt::RESERVED,
        exp_stat_sn: Sn(1),
        data_sn: 0,
        offset: 0,
    };
    assert_eq!(book.header(&[0; BHS_LEN], &pdu, 0).unwrap_err(), TooManyAbandoned);
}
