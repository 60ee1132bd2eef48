//! What the engine checks before a command runs.

use super::*;
use crate::scsi::Status;
use crate::scsi::testing::{Command, device, nexus, sense, status, unit};

/// Runs a command on LUN 0 of `device`, for a nexus that has nothing to be told.
async fn ended(cdb: &[u8]) -> crate::scsi::Outcome {
    let device = device(&[unit(64)]);
    Command::new(0, cdb).run(&device, &nexus(1)).await.0
}

fn pointer(sense: &Sense) -> (u16, Option<u8>) {
    let field = sense.field.unwrap();
    assert!(field.in_cdb);
    (field.byte, field.bit)
}

#[test]
fn the_maps_of_the_table_begin_with_their_codes() {
    for spec in COMMANDS {
        assert_eq!(spec.usage[0], spec.opcode, "{}", spec.name);
        let cdb = Cdb::new(spec.usage);
        if let Some(action) = spec.service_action {
            assert_eq!(cdb.service_action(), action, "{}", spec.name);
        }
        let found = find(cdb, None).unwrap();
        assert_eq!(
            (found.opcode, found.service_action),
            (spec.opcode, spec.service_action)
        );
        assert!(check_usage(spec, cdb, false).is_ok(), "{}", spec.name);
    }
}

#[tokio::test]
async fn an_unknown_operation_code_is_named() {
    let told = sense(&ended(&[0xc0, 0, 0, 0, 0, 0]).await);
    assert_eq!((told.key, told.code), (SenseKey::IllegalRequest, (0x20, 0x00)));
}

#[tokio::test]
async fn a_bit_that_the_command_does_not_know_is_pointed_at() {
    let told = sense(&ended(&[0x00, 0, 0x30, 0, 0, 0]).await);
    assert_eq!(told.code, (0x24, 0x00));
    assert_eq!(pointer(&told), (2, Some(5)));
}

#[tokio::test]
async fn naca_is_refused_and_vendor_bits_mean_nothing() {
    let told = sense(&ended(&[0x00, 0, 0, 0, 0, 0x04]).await);
    assert_eq!(pointer(&told), (5, Some(2)));
    assert_eq!(status(&ended(&[0x00, 0, 0, 0, 0, 0xc0]).await), Status::Good);
}

#[tokio::test]
async fn a_lun_without_a_unit_is_not_supported() {
    let device = device(&[unit(64)]);
    let (outcome, _) = Command::new(7, &[0x00]).run(&device, &nexus(1)).await;
    assert_eq!(sense(&outcome).code, (0x25, 0x00));
    let (outcome, _) = Command::new(7, &[0xc0]).run(&device, &nexus(1)).await;
    assert_eq!(sense(&outcome).code, (0x25, 0x00));
}

#[tokio::test]
async fn an_aca_task_is_an_invalid_message() {
    let device = device(&[unit(64)]);
    let command = Command {
        attribute: TaskAttribute::Aca,
        ..Command::new(0, &[0x00])
    };
    let (outcome, _) = command.run(&device, &nexus(1)).await;
    assert_eq!(sense(&outcome).code, (0x49, 0x00));
}

#[tokio::test]
async fn blocks_outside_the_medium_are_named_by_the_first_of_them() {
    let read_10 = [0x28, 0, 0, 0, 0, 60, 0, 0, 8, 0];
    let told = sense(&ended(&read_10).await);
    assert_eq!((told.code, told.information), ((0x21, 0x00), Some(64)));
    let mut read_16 = [0xff; 16];
    read_16[0] = 0x88;
    (read_16[1], read_16[14], read_16[15]) = (0, 0, 0);
    let told = sense(&ended(&read_16).await);
    assert_eq!((told.code, told.information), ((0x21, 0x00), Some(u64::MAX)));
}

#[tokio::test]
async fn sense_data_come_in_the_format_that_the_unit_is_set_to() {
    let unit = unit(64);
    let device = device(&[Arc::clone(&unit)]);
    let mut parameters = unit.mode_parameters();
    parameters.descriptor_sense = true;
    unit.set_mode_parameters(parameters);
    let (outcome, _) = Command::new(0, &[0xc0]).run(&device, &nexus(1)).await;
    assert!(sense(&outcome).descriptor_format);
}

#[tokio::test]
async fn a_task_that_was_aborted_before_its_first_step_does_nothing() {
    let device = device(&[unit(64)]);
    let command = Command::new(0, &[0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0]).sending(&[1; 512]);
    command.abort.fire();
    let (outcome, _) = command.run(&device, &nexus(1)).await;
    assert_eq!(outcome, crate::scsi::Outcome::Aborted);
    let (_, data) = Command::new(0, &[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0])
        .expecting(512)
        .run(&device, &nexus(1))
        .await;
    assert_eq!(data, [0; 512]);
}

#[tokio::test]
async fn a_command_costs_little_memory() {
    let (setup, _connection) = crate::scsi::testing::connection(0, 0, Vec::new(), 0);
    let task = ScsiTask {
        lun: Lun::ZERO,
        cdb: bytes::Bytes::from_static(&[0; 16]),
        attribute: TaskAttribute::Simple,
        priority: 0,
        tag: 0,
    };
    let command = device(&[unit(64)]).execute(&nexus(1), task, Transfer::new(setup));
    let size = size_of_val(&command);
    assert!(size <= 1600, "{size} bytes for each command");
}
