//! Headers bit by bit, for every PDU: what the standard defines survives a round trip, what it reserves is sent as
//! zero, and values it reserves are refused by name.

use iscsi_proto::pdu::{Request, Response};
use iscsi_proto::{BHS_LEN, DecodeError};
use proptest::prelude::*;

type Bhs = [u8; BHS_LEN];

/// One kind of PDU, as the figures of RFC 7143 §11 (RFC 7144 for priority and additional information) draw it.
struct Figure {
    name: &'static str,
    opcode: u8,
    /// Bits that carry something, twelve words.
    meaningful: [u32; 12],
    /// Bits that are always sent as 1.
    ones: [u32; 12],
}

const F: u32 = 0xffff_ffff;
const HIGH: u32 = 0xffff_0000;

/// Bits of the first word (and the fifth) that are always 1.
const fn ones(first: u32, itt: u32) -> [u32; 12] {
    [first, 0, 0, 0, itt, 0, 0, 0, 0, 0, 0, 0]
}

#[rustfmt::skip]
const FIGURES: [Figure; 18] = [
    Figure { name: "NOP-Out", opcode: 0x00, ones: ones(0x0080_0000, 0),
        meaningful: [0x7f00_0000, 0, F, F, F, F, F, F, 0, 0, 0, 0] },
    Figure { name: "SCSI Command", opcode: 0x01, ones: ones(0, 0),
        meaningful: [0x7fe7_f000, 0, F, F, F, F, F, F, F, F, F, F] },
    Figure { name: "Task Management Function Request", opcode: 0x02, ones: ones(0x0080_0000, 0),
        meaningful: [0x7f7f_0000, 0, F, F, F, F, F, F, F, F, 0, 0] },
    Figure { name: "Login Request", opcode: 0x03, ones: ones(0x4000_0000, 0),
        meaningful: [0x3fcf_ffff, 0, F, F, F, HIGH, F, F, 0, 0, 0, 0] },
    Figure { name: "Text Request", opcode: 0x04, ones: ones(0, 0),
        meaningful: [0x7fc0_0000, 0, F, F, F, F, F, F, 0, 0, 0, 0] },
    Figure { name: "SCSI Data-Out", opcode: 0x05, ones: ones(0, 0),
        meaningful: [0x3f80_0000, 0, F, F, F, F, 0, F, 0, F, F, 0] },
    Figure { name: "Logout Request", opcode: 0x06, ones: ones(0x0080_0000, 0),
        meaningful: [0x7f7f_0000, 0, 0, 0, F, HIGH, F, F, 0, 0, 0, 0] },
    Figure { name: "SNACK Request", opcode: 0x10, ones: ones(0x0080_0000, 0),
        meaningful: [0x3f0f_0000, 0, F, F, F, F, 0, F, 0, 0, F, F] },
    Figure { name: "NOP-In", opcode: 0x20, ones: ones(0x0080_0000, 0),
        meaningful: [0x3f00_0000, 0, F, F, F, F, F, F, F, 0, 0, 0] },
    Figure { name: "SCSI Response", opcode: 0x21, ones: ones(0x0080_0000, 0),
        meaningful: [0x3f1e_ffff, 0, 0, 0, F, F, F, F, F, F, F, F] },
    Figure { name: "Task Management Function Response", opcode: 0x22, ones: ones(0x0080_0000, 0),
        meaningful: [0x3f00_ff00, 0, 0xffff_ff00, 0, F, 0, F, F, F, 0, 0, 0] },
    Figure { name: "Login Response", opcode: 0x23, ones: ones(0, 0),
        meaningful: [0x3fcf_ffff, 0, F, F, F, 0, F, F, F, HIGH, 0, 0] },
    Figure { name: "Text Response", opcode: 0x24, ones: ones(0, 0),
        meaningful: [0x3fc0_0000, 0, F, F, F, F, F, F, F, 0, 0, 0] },
    Figure { name: "SCSI Data-In", opcode: 0x25, ones: ones(0, 0),
        meaningful: [0x3fc7_00ff, 0, F, F, F, F, F, F, F, F, F, F] },
    Figure { name: "Logout Response", opcode: 0x26, ones: ones(0x0080_0000, 0),
        meaningful: [0x3f00_ff00, 0, 0, 0, F, 0, F, F, F, 0, F, 0] },
    Figure { name: "R2T", opcode: 0x31, ones: ones(0x0080_0000, 0),
        meaningful: [0x3f00_0000, 0, F, F, F, F, F, F, F, F, F, F] },
    Figure { name: "Asynchronous Message", opcode: 0x32, ones: ones(0x0080_0000, F),
        meaningful: [0x3f00_0000, 0, F, F, 0, 0, F, F, F, F, F, 0] },
    Figure { name: "Reject", opcode: 0x3f, ones: ones(0x0080_0000, F),
        meaningful: [0x3f00_ff00, 0, 0, 0, 0, 0, F, F, F, F, 0, 0] },
];

/// Turns arbitrary bytes into a header of this kind in which no field is void or out of range.
fn fill(figure: &Figure, mut bhs: Bhs) -> Bhs {
    bhs[0] = bhs[0] & 0xc0 | figure.opcode;
    match figure.opcode {
        // F or W; an attribute that exists.
        0x01 => bhs[1] = bhs[1] & 0x7b | 0x80,
        // T, so that NSG counts; no stage 2.
        0x03 | 0x23 => bhs[1] = bhs[1] & 0xf5 | 0x80,
        0x06 => bhs[1] = (bhs[1] & 0x80) | (bhs[1] % 3),
        0x10 => bhs[1] &= 0xf3,
        // Underflow in one direction, overflow in the other, or the reverse.
        0x21 => {
            bhs[1] = if bhs[1] & 1 == 0 { 0x14 } else { 0x0a };
            bhs[2] %= 2;
        }
        0x22 => bhs[2] %= 8,
        // F and S, and one kind of residual.
        0x25 => bhs[1] = bhs[1] & 0x78 | if bhs[1] & 2 == 0 { 0x83 } else { 0x85 },
        0x26 => bhs[2] %= 4,
        // Events below 6 do not use all parameters.
        0x32 => bhs[36] |= 0x08,
        _ => {}
    }
    bhs
}

fn words(bhs: &Bhs) -> [u32; 12] {
    std::array::from_fn(|i| u32::from_be_bytes(bhs[4 * i..4 * i + 4].try_into().expect("four bytes")))
}

fn recode(bhs: &Bhs) -> Result<(Bhs, &'static str), DecodeError> {
    if bhs[0] & 0x20 == 0 {
        Request::decode(bhs).map(|request| (request.encode(), request.name()))
    } else {
        Response::decode(bhs).map(|response| (response.encode(), response.name()))
    }
}

fn header() -> impl Strategy<Value = Bhs> {
    proptest::collection::vec(any::<u8>(), BHS_LEN).prop_map(|bytes| bytes.try_into().expect("48 bytes"))
}

proptest! {
    #[test]
    fn every_defined_bit_survives_and_every_reserved_one_is_cleared(bytes in header()) {
        for figure in &FIGURES {
            let bhs = fill(figure, bytes);
            let (encoded, name) = recode(&bhs).map_err(|error| TestCaseError::fail(error.to_string()))?;
            prop_assert_eq!(name, figure.name);
            let expected: [u32; 12] =
                std::array::from_fn(|i| words(&bhs)[i] & figure.meaningful[i] | figure.ones[i]);
            prop_assert_eq!(words(&encoded), expected, "{}", figure.name);
        }
    }

    #[test]
    fn any_header_is_refused_or_read_the_same_after_being_written(bytes in header(), opcode in 0_u8..64) {
        let mut bhs = bytes;
        bhs[0] = bhs[0] & 0xc0 | opcode;
        if let Ok(request) = Request::decode(&bhs) {
            prop_assert_eq!(Request::decode(&request.encode()), Ok(request));
        }
        if let Ok(response) = Response::decode(&bhs) {
            prop_assert_eq!(Response::decode(&response.encode()), Ok(response));
        }
    }
}

#[test]
fn opcodes_of_one_side_are_refused_from_the_other() {
    for figure in &FIGURES {
        let mut bhs = [0; BHS_LEN];
        bhs[0] = figure.opcode;
        let from_wrong_side = match figure.opcode & 0x20 {
            0 => Response::decode(&bhs).map(|_| ()),
            _ => Request::decode(&bhs).map(|_| ()),
        };
        assert_eq!(from_wrong_side, Err(DecodeError::Opcode(figure.opcode)));
    }
}

#[test]
fn opcodes_without_a_meaning_are_refused() {
    for opcode in (0..64).filter(|opcode| FIGURES.iter().all(|figure| figure.opcode != *opcode)) {
        let mut bhs = [0; BHS_LEN];
        bhs[0] = opcode;
        assert_eq!(Request::decode(&bhs), Err(DecodeError::Opcode(opcode)));
        assert_eq!(Response::decode(&bhs), Err(DecodeError::Opcode(opcode)));
    }
}

#[test]
fn reserved_values_are_refused_by_name() {
    /// Opcode, bytes to set, and the field that is to be named.
    type Case = (u8, &'static [(usize, u8)], &'static str);
    let cases: &[Case] = &[
        (0x01, &[(1, 0x85)], "SCSI Command: ATTR is 0x5"),
        (0x01, &[(1, 0x40)], "SCSI Command: F without W is 0x0"),
        (0x03, &[(1, 0x88)], "Login Request: CSG is 0x2"),
        (0x03, &[(1, 0x82)], "Login Request: NSG is 0x2"),
        (0x06, &[(1, 0x83)], "Logout Request: Reason Code is 0x3"),
        (0x10, &[(1, 0x84)], "SNACK Request: Type is 0x4"),
        (0x21, &[(2, 0x02)], "SCSI Response: Response is 0x2"),
        (0x21, &[(1, 0x86)], "SCSI Response: O and U is 0x6"),
        (0x21, &[(1, 0x98)], "SCSI Response: O and U is 0x6"),
        (
            0x22,
            &[(2, 0x08)],
            "Task Management Function Response: Response is 0x8",
        ),
        (0x25, &[(1, 0x01)], "SCSI Data-In: F with S is 0x0"),
        (0x26, &[(2, 0x04)], "Logout Response: Response is 0x4"),
        (0x31, &[(47, 0x00)], "R2T: Desired Data Transfer Length is 0x0"),
    ];
    for (opcode, bytes, message) in cases {
        let mut bhs = [0; BHS_LEN];
        bhs[0] = *opcode;
        for (at, byte) in *bytes {
            bhs[*at] = *byte;
        }
        assert_eq!(
            recode(&bhs).map_err(|error| error.to_string()),
            Err((*message).to_owned())
        );
    }
}

#[test]
fn requests_that_start_a_task_need_a_tag() {
    for opcode in [0x01, 0x02, 0x03, 0x04, 0x06] {
        let mut bhs = [0; BHS_LEN];
        bhs[..2].copy_from_slice(&[opcode, 0x80]);
        bhs[16..20].fill(0xff);
        let refused = Request::decode(&bhs).unwrap_err();
        assert!(
            refused.to_string().ends_with("Initiator Task Tag is 0xffffffff"),
            "{refused}"
        );
    }
}

#[test]
fn next_stage_is_void_without_transit() {
    let mut bhs = [0; BHS_LEN];
    bhs[..2].copy_from_slice(&[0x43, 0x06]);
    let Ok(Request::Login(login)) = Request::decode(&bhs) else {
        panic!("a login request")
    };
    assert_eq!(login.next_stage, login.current_stage);
    assert_eq!(Request::Login(login).encode()[1], 0x04);
}

#[test]
fn task_management_functions_without_a_meaning_are_values() {
    use iscsi_proto::pdu::Function;
    for code in [0, 13, 0x7f] {
        let mut bhs = [0; BHS_LEN];
        bhs[..2].copy_from_slice(&[0x02, 0x80 | code]);
        let Ok(Request::TaskManagement(request)) = Request::decode(&bhs) else {
            panic!("code {code}")
        };
        assert_eq!(request.function, Function::Unknown(code));
    }
}
