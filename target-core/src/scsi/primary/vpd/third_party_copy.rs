//! Third-party Copy (8Fh, SPC-4; its block device part SBC-3): which copies there are, and their limits.
//! A list of descriptors, ascending by type.

use super::Subject;
use crate::scsi::copy::limits::{
    CONCURRENT_COPIES, DEFAULT_INACTIVITY_S, MAXIMUM_CSCD_DESCRIPTORS, MAXIMUM_DESCRIPTOR_LIST,
    MAXIMUM_INACTIVITY_S, MAXIMUM_RANGES, MAXIMUM_SEGMENT_LENGTH, MAXIMUM_SEGMENTS, MAXIMUM_TOKEN_BYTES,
    OPTIMAL_TOKEN_BYTES, REMEMBERED_COPIES, ROD_CHANGE_VULNERABLE, ROD_ZERO, THIRD_PARTY_COPY_IN,
    THIRD_PARTY_COPY_OUT,
};
use crate::scsi::copy::operating_parameters::DESCRIPTOR_KINDS;
use crate::scsi::table::COMMANDS;

pub(super) fn body(subject: &Subject<'_>) -> Vec<u8> {
    let mut body = Vec::new();
    descriptor(
        &mut body,
        0x0000,
        &token_limits(u64::from(subject.geometry.block_size)),
    );
    descriptor(&mut body, 0x0001, &commands());
    descriptor(&mut body, 0x0004, &parameter_data());
    descriptor(&mut body, 0x0008, &counted(&DESCRIPTOR_KINDS));
    descriptor(&mut body, 0x0106, &token_features());
    descriptor(&mut body, 0x0108, &token_types());
    descriptor(&mut body, 0x8001, &general_operations());
    body
}

/// A descriptor's length is a multiple of four.
fn descriptor(body: &mut Vec<u8>, kind: u16, content: &[u8]) {
    let len = u16::try_from(content.len().next_multiple_of(4)).expect("each has a few dozen bytes");
    body.extend(kind.to_be_bytes());
    body.extend(len.to_be_bytes());
    body.extend(content);
    body.resize(body.len().next_multiple_of(4), 0);
}

/// Block Device ROD Token Limits.
fn token_limits(block: u64) -> Vec<u8> {
    let mut content = vec![0; 6];
    content.extend(MAXIMUM_RANGES.to_be_bytes());
    content.extend(MAXIMUM_INACTIVITY_S.to_be_bytes());
    content.extend(DEFAULT_INACTIVITY_S.to_be_bytes());
    content.extend((MAXIMUM_TOKEN_BYTES / block).to_be_bytes());
    content.extend((OPTIMAL_TOKEN_BYTES / block).to_be_bytes());
    content
}

/// Supported Commands: of both operation codes the service actions, read off the table.
fn commands() -> Vec<u8> {
    let mut list = Vec::new();
    for opcode in [THIRD_PARTY_COPY_OUT, THIRD_PARTY_COPY_IN] {
        let actions = COMMANDS
            .iter()
            .filter(|command| command.opcode == opcode)
            .filter_map(|command| u8::try_from(command.service_action?).ok());
        list.push(opcode);
        list.extend(counted(&actions.collect::<Vec<_>>()));
    }
    counted(&list)
}

/// Parameter Data of EXTENDED COPY.
fn parameter_data() -> Vec<u8> {
    let mut content = vec![0; 4];
    content.extend(MAXIMUM_CSCD_DESCRIPTORS.to_be_bytes());
    content.extend(MAXIMUM_SEGMENTS.to_be_bytes());
    content.extend(MAXIMUM_DESCRIPTOR_LIST.to_be_bytes());
    content.resize(28, 0);
    content
}

/// ROD Token Features: no tokens of other copy managers; they live by being used, which nothing else limits.
fn token_features() -> Vec<u8> {
    let mut content = vec![0; 20];
    content.extend(MAXIMUM_INACTIVITY_S.to_be_bytes());
    content.resize(42, 0);
    let mut block_devices = vec![0; 4];
    block_devices[2..].copy_from_slice(&44_u16.to_be_bytes());
    block_devices.extend([0; 4]);
    block_devices.extend(MAXIMUM_TOKEN_BYTES.to_be_bytes());
    for _transfer_to_token_from_token in 0..3 {
        block_devices.extend(OPTIMAL_TOKEN_BYTES.to_be_bytes());
    }
    block_devices.resize(48, 0);
    let len = u16::try_from(block_devices.len()).expect("48");
    [&content[..], &len.to_be_bytes(), &block_devices].concat()
}

/// Supported ROD Types: point in time, change vulnerable, made and taken; and the well-known zeroes, taken.
fn token_types() -> Vec<u8> {
    let mut types = Vec::new();
    for (kind, flags, preference) in [
        (ROD_CHANGE_VULNERABLE, TOKEN_IN | TOKEN_OUT, 0x8000_u16),
        (ROD_ZERO, TOKEN_IN, 0),
    ] {
        let mut one = kind.to_be_bytes().to_vec();
        one.extend([flags, 0]);
        one.extend(preference.to_be_bytes());
        one.resize(64, 0);
        types.extend(one);
    }
    let len = u16::try_from(types.len()).expect("128");
    [&[0, 0][..], &len.to_be_bytes(), &types].concat()
}

/// General Copy Operations.
fn general_operations() -> Vec<u8> {
    let mut content = u32::from(CONCURRENT_COPIES).to_be_bytes().to_vec();
    content.extend(u32::from(REMEMBERED_COPIES).to_be_bytes());
    content.extend(MAXIMUM_SEGMENT_LENGTH.to_be_bytes());
    // Segments are cut to bytes; inline data there are none.
    content.resize(32, 0);
    content
}

/// A list behind one byte with its length.
fn counted(list: &[u8]) -> Vec<u8> {
    let len = u8::try_from(list.len()).expect("short lists");
    [&[len][..], list].concat()
}

const TOKEN_IN: u8 = 0x02;
const TOKEN_OUT: u8 = 0x01;

#[cfg(test)]
mod tests {
    use crate::scsi::primary::vpd::tests::{config, geometry, with_page};

    #[test]
    fn descriptors_ascend_and_fill_the_page() {
        let page = with_page(0x8f, &geometry(), &config()).unwrap();
        let mut rest = &page[4..];
        let mut found = Vec::new();
        while !rest.is_empty() {
            let field = |at: usize| u16::from_be_bytes([rest[at], rest[at + 1]]);
            let len = usize::from(field(2));
            found.push((field(0), len));
            rest = &rest[4 + len..];
        }
        assert_eq!(
            found,
            [
                (0x0000, 32),
                (0x0001, 16),
                (0x0004, 28),
                (0x0008, 4),
                (0x0106, 92),
                (0x0108, 132),
                (0x8001, 32)
            ]
        );
    }

    #[test]
    fn the_first_descriptors_are_what_hosts_look_for() {
        let page = with_page(0x8f, &geometry(), &config()).unwrap();
        assert_eq!(
            page[8..40],
            [
                0, 0, 0, 0, 0, 0, 0x02, 0x00, 0, 0, 0x0e, 0x10, 0, 0, 0, 60, 0, 0, 0, 0, 0x08, 0, 0, 0, 0, 0,
                0, 0, 0, 2, 0, 0
            ]
        );
        assert_eq!(
            page[44..58],
            [
                13, 0x83, 4, 0x00, 0x10, 0x11, 0x1c, 0x84, 5, 0x00, 0x03, 0x04, 0x05, 0x07
            ]
        );
    }
}
