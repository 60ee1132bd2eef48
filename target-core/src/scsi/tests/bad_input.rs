//! Input that no command asks for, command by command of the table: bits that mean nothing, service actions that are not
//! there, parameter lists of wrong lengths and with anything in them. Each is told what is wrong, and where.

use super::*;
use crate::scsi::table::{COMMANDS, CommandSpec};
use crate::scsi::testing::TestMemory;
use crate::scsi::{DeviceType, Outcome, Sense};

/// A disk and a drive that have every command there is.
fn devices() -> [Arc<TargetDevice>; 2] {
    let removable = |device_type, block_size| {
        let options = backstores::StoreOptions {
            block_size: Some(block_size),
            ..backstores::StoreOptions::default()
        };
        let source = backstores::StoreSource::Memory { size: 1 << 20 };
        let config = UnitConfig {
            device_type,
            removable: true,
            ..config()
        };
        let unit = LogicalUnit::new(config, backstores::open(&source, options).unwrap());
        unit.remember(&TestMemory::shared()).unwrap();
        device(&[unit])
    };
    [
        removable(DeviceType::Disk, 512),
        removable(DeviceType::Cdrom, 2048),
    ]
}

/// The commands that a device has.
fn commands(device: &Arc<TargetDevice>) -> Vec<&'static CommandSpec> {
    let unit = device.unit(0).unwrap();
    let all = COMMANDS.iter().copied();
    all.filter(|spec| spec.exists_on(&unit)).collect()
}

/// A CDB with nothing but its operation code and service action.
fn bare(spec: &CommandSpec) -> Vec<u8> {
    let mut cdb = vec![0; spec.usage.len()];
    cdb[0] = spec.opcode;
    cdb[1] = spec
        .service_action
        .map_or(0, |action| u8::try_from(action).unwrap());
    cdb
}

/// Code of the sense, whether it points into the CDB, byte and bit.
fn pointer(sense: Sense) -> ((u8, u8), bool, u16, Option<u8>) {
    let field = sense
        .field
        .unwrap_or_else(|| panic!("no field pointer: {sense:?}"));
    (sense.code, field.in_cdb, field.byte, field.bit)
}

#[tokio::test]
async fn every_bit_that_a_command_does_not_know_is_refused_where_it_stands() {
    for device in devices() {
        let mut refused = 0;
        for spec in commands(&device) {
            let control = spec.usage.len() - 1;
            for byte in 1..spec.usage.len() {
                for bit in 0..8 {
                    let in_action = byte == 1 && spec.service_action.is_some() && bit < 5;
                    // Vendor specific and obsolete bits of the control byte; NACA is refused.
                    let ignored = byte == control && matches!(bit, 0 | 1 | 6 | 7);
                    if spec.usage[byte] & 1 << bit != 0 || in_action || ignored {
                        continue;
                    }
                    let mut cdb = bare(spec);
                    cdb[byte] |= 1 << bit;
                    let (outcome, data) = run(&device, 0, &cdb, &[]).await;
                    let expected = ((0x24, 0x00), true, u16::try_from(byte).unwrap(), Some(bit));
                    assert_eq!(pointer(sense(&outcome)), expected, "{} {cdb:02x?}", spec.name);
                    assert!(data.is_empty(), "{}", spec.name);
                    refused += 1;
                }
            }
        }
        assert!(refused > 500, "{refused}");
    }
}

#[tokio::test]
async fn operation_codes_and_service_actions_that_are_not_there_are_told_apart() {
    for device in devices() {
        let known = commands(&device);
        for opcode in 0..=0xff_u8 {
            let mut of_opcode = known.iter().filter(|spec| spec.opcode == opcode).peekable();
            let has_actions = match of_opcode.peek() {
                None => {
                    let (outcome, _) = run(&device, 0, &[opcode, 0, 0, 0, 0, 0], &[]).await;
                    let expected = ((0x20, 0x00), true, 0, None);
                    assert_eq!(pointer(sense(&outcome)), expected, "{opcode:02x}");
                    continue;
                }
                Some(spec) => spec.service_action.is_some(),
            };
            let actions: Vec<_> = of_opcode.filter_map(|spec| spec.service_action).collect();
            for action in (0..32).filter(|action| has_actions && !actions.contains(action)) {
                let cdb = [opcode, u8::try_from(action).unwrap(), 0, 0, 0, 0];
                let (outcome, _) = run(&device, 0, &cdb, &[]).await;
                let expected = ((0x24, 0x00), true, 1, Some(4));
                assert_eq!(pointer(sense(&outcome)), expected, "{opcode:02x} {action:02x}");
            }
        }
    }
}

/// Where PARAMETER LIST LENGTH is: byte and width. FORMAT UNIT has none.
fn list_length(spec: &CommandSpec) -> Option<(usize, usize)> {
    match (spec.opcode, spec.service_action) {
        (0x15, _) => Some((4, 1)),
        (0x1d, _) => Some((3, 2)),
        (0x42 | 0x48 | 0x4c | 0x55, _) => Some((7, 2)),
        (0x5f, _) => Some((5, 4)),
        (0x83, Some(action)) if action != 0x1c => Some((10, 4)),
        (0xa4, _) => Some((6, 4)),
        _ => None,
    }
}

/// Flags that make a command take the list, byte and value.
fn flags(spec: &CommandSpec) -> (usize, u8) {
    match spec.opcode {
        0x04 | 0x15 | 0x1d | 0x55 => (1, 0x10),
        _ => (1, 0),
    }
}

/// An answer that such input may have: it is good, or says that the list is wrong or not wanted, and where.
fn assert_answer(outcome: &Outcome, cdb: &[u8], announced: usize, what: &str) {
    match status(outcome) {
        Status::Good | Status::ReservationConflict => return,
        Status::CheckCondition => {}
        other => panic!("{what}: {other:?}"),
    }
    let sense = sense(outcome);
    match sense.code {
        // Length error; copy commands point at a CSCD, or say that a list identifier is in use.
        (0x1a, 0x00) => assert_eq!(sense.key as u8, 5, "{what}"),
        (0x24, 0x00) => {
            let (_, in_cdb, byte, _) = pointer(sense);
            assert!(in_cdb && usize::from(byte) < cdb.len(), "{what}: {sense:?}");
        }
        (0x26, _) => {
            let (_, in_cdb, byte, _) = pointer(sense);
            assert!(!in_cdb && usize::from(byte) < announced, "{what}: {sense:?}");
        }
        (0x21, 0x00) => assert_eq!(sense.key as u8, 5, "{what}"),
        (0x23, _) | (0x0d, _) | (0x55, _) => {}
        other => panic!("{what}: {other:02x?}"),
    }
}

#[tokio::test]
async fn parameter_lists_of_every_length_and_with_anything_in_them_get_an_answer() {
    let fills: [fn(usize) -> u8; 4] = [
        |_| 0,
        |_| 0xff,
        |at| u8::try_from(at % 256).unwrap(),
        |at| u8::from(at % 4 == 3),
    ];
    for device in devices() {
        let mut lists = 0;
        for spec in commands(&device) {
            let Some((at, width)) = list_length(spec).or_else(|| (spec.opcode == 0x04).then_some((0, 0)))
            else {
                continue;
            };
            for announced in (0_u32..=48).chain([255, 256, 512, 516, 1000]) {
                if width != 0 && u64::from(announced) >> (8 * width) != 0 {
                    continue;
                }
                let mut cdb = bare(spec);
                let (byte, value) = flags(spec);
                cdb[byte] |= value;
                cdb[at..at + width].copy_from_slice(&announced.to_be_bytes()[4 - width..]);
                for fill in fills {
                    for sent in [
                        announced,
                        announced / 2,
                        announced.saturating_sub(1),
                        announced + 8,
                    ] {
                        let list: Vec<u8> = (0..sent as usize).map(fill).collect();
                        let command = Command::new(0, &cdb).sending(&list);
                        let (outcome, _) = command.run(&device, &nexus(1)).await;
                        let what = format!("{} {announced} {sent} {:02x?}", spec.name, list.get(..4));
                        assert_answer(&outcome, &cdb, announced.max(sent) as usize, &what);
                        lists += 1;
                        // What was asked for in the background is over before the next.
                        let _ = device.unit(0).unwrap().erasure().ended().await;
                        let loaded = run(&device, 0, &[0x1b, 0, 0, 0, 3, 0], &[]).await;
                        drop(loaded);
                    }
                }
            }
        }
        assert!(lists > 1000, "{lists}");
    }
}

#[tokio::test]
async fn a_list_that_is_shorter_than_announced_is_a_length_error_or_goes_as_far_as_it_came() {
    let [device, _] = devices();
    for (cdb, sent) in [
        // MODE SELECT (6) and (10), UNMAP, PERSISTENT RESERVE OUT, SET TARGET PORT GROUPS, EXTENDED COPY.
        (&[0x15, 0x10, 0, 0, 24, 0][..], &[0; 3][..]),
        (&[0x55, 0x10, 0, 0, 0, 0, 0, 0, 24, 0], &[0; 7]),
        (&[0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0], &[0, 22, 0, 16, 0, 0, 0, 0]),
        (&[0x5f, 0x06, 0, 0, 0, 0, 0, 0, 24, 0], &[0; 23]),
        (&[0xa4, 0x0a, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0], &[0; 3]),
        (&[0x83, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0], &[0; 15]),
    ] {
        let (outcome, _) = run(&device, 0, cdb, sent).await;
        assert_eq!(sense(&outcome).code, (0x1a, 0x00), "{cdb:02x?}");
    }
}

/// Commands whose answers do not change between two of them, with the place and width of ALLOCATION LENGTH: log pages, mode
/// pages, paths, the one byte of a timestamp that stays.
const ANSWERS: [(&[u8], (usize, usize), usize); 11] = [
    (&[0x4d, 0, 0x00, 0x00, 0, 0, 0, 0, 0, 0], (7, 2), usize::MAX),
    (&[0x4d, 0, 0x00, 0xff, 0, 0, 0, 0, 0, 0], (7, 2), usize::MAX),
    (&[0x4d, 0, 0x0c, 0x00, 0, 0, 0, 0, 0, 0], (7, 2), usize::MAX),
    (&[0x4d, 0, 0x10, 0x00, 0, 0, 0, 0, 0, 0], (7, 2), usize::MAX),
    (&[0x4d, 0, 0x19, 0x00, 0, 0, 0, 0, 0, 0], (7, 2), usize::MAX),
    (&[0x4d, 0, 0x2f, 0x00, 0, 0, 0, 0, 0, 0], (7, 2), usize::MAX),
    (&[0x1a, 0, 0x0a, 0x01, 0, 0], (4, 1), usize::MAX),
    (&[0x5a, 0, 0x3f, 0xff, 0, 0, 0, 0, 0, 0], (7, 2), usize::MAX),
    (&[0xa3, 0x0a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], (6, 4), usize::MAX),
    (&[0xa3, 0x2a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], (6, 4), usize::MAX),
    (&[0xa3, 0x0f, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], (6, 4), 4),
];

#[tokio::test]
async fn an_answer_is_cut_at_its_allocation_length_and_never_differs_otherwise() {
    let [device, _] = devices();
    for (bare, (at, width), stays) in ANSWERS {
        let with = |allocation: u32| {
            let mut cdb = bare.to_vec();
            cdb[at..at + width].copy_from_slice(&allocation.to_be_bytes()[4 - width..]);
            cdb
        };
        let widest = u32::try_from((1_u64 << (8 * width)) - 1).unwrap();
        let (outcome, whole) = run(&device, 0, &with(widest), &[]).await;
        assert_eq!(status(&outcome), Status::Good, "{bare:02x?}");
        assert!(whole.len() > 4);
        for allocation in (0..=260).chain([0xfffe, 0xffff]).filter(|len| *len <= widest) {
            let (outcome, data) = run(&device, 0, &with(allocation), &[]).await;
            assert_eq!(status(&outcome), Status::Good, "{bare:02x?} {allocation}");
            let expected = whole.len().min(allocation as usize);
            assert_eq!(data.len(), expected, "{bare:02x?} {allocation}");
            let same = expected.min(stays);
            assert_eq!(data[..same], whole[..same], "{bare:02x?} {allocation}");
        }
    }
}

#[tokio::test]
async fn log_select_takes_lists_of_every_length_and_counts_on_through_all_of_them() {
    let [device, _] = devices();
    run(&device, 0, &[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0], &[]).await;
    let read = [0x4d, 0, 0x19, 0, 0, 0, 0, 0, 72, 0];
    let (_, before) = run(&device, 0, &read, &[]).await;
    assert_eq!(before[15], 1, "one read");
    let pages = [
        // Each page without parameters, one after the other; the statistics as they were told; a page that is cut off.
        [0x00, 0, 0, 0, 0x40, 0xff, 0, 0, 0x0c, 0, 0, 0, 0x10, 0, 0, 0].to_vec(),
        before.clone(),
        vec![0x19, 0, 0xff, 0xff],
    ];
    for announced in (1_u16..=300).chain([0x7fff, 0xfffe, 0xffff]) {
        for page in &pages {
            for sent in [announced, announced - 1, announced / 2] {
                let list: Vec<u8> = page.iter().copied().cycle().take(sent.into()).collect();
                let [high, low] = announced.to_be_bytes();
                let cdb = [0x4c, 0, 0x40, 0, 0, 0, 0, high, low, 0];
                let (outcome, _) = Command::new(0, &cdb).sending(&list).run(&device, &nexus(1)).await;
                assert_answer(&outcome, &cdb, announced.into(), &format!("{announced} {sent}"));
            }
        }
    }
    assert_eq!(run(&device, 0, &read, &[]).await.1, before);
}
