//! What a session agreed on, in words: each key of RFC 7143 with its value and what it means for this session.

use management::control::Negotiated;

/// A key, its value, and what it means.
#[derive(Debug, PartialEq)]
pub(super) struct Agreed {
    pub(super) key: &'static str,
    pub(super) value: String,
    pub(super) meaning: &'static str,
}

/// Every key, in groups that belong together.
pub(super) fn agreed(values: &Negotiated) -> Vec<Agreed> {
    let row = |key, value: String, meaning| Agreed { key, value, meaning };
    vec![
        row(
            "HeaderDigest",
            values.header_digest.clone(),
            "Checksum over the header of each PDU",
        ),
        row(
            "DataDigest",
            values.data_digest.clone(),
            "Checksum over the data of each PDU",
        ),
        row(
            "MaxRecvDataSegmentLength (target)",
            bytes(values.max_recv_data_segment_length),
            "Data we take in one PDU",
        ),
        row(
            "MaxRecvDataSegmentLength (initiator)",
            bytes(values.max_send_data_segment_length),
            "Data the initiator takes in one PDU",
        ),
        row(
            "MaxBurstLength",
            bytes(values.max_burst_length),
            "Data of one sequence, in either direction",
        ),
        row(
            "FirstBurstLength",
            bytes(values.first_burst_length),
            "Data of a write that may come unasked",
        ),
        row(
            "ImmediateData",
            yes_no(values.immediate_data),
            "Data of a write may come with its command",
        ),
        row(
            "InitialR2T",
            yes_no(values.initial_r2t),
            "Further data of a write wait until we ask for them",
        ),
        row(
            "MaxOutstandingR2T",
            values.max_outstanding_r2t.to_string(),
            "Requests for data at once, for each write",
        ),
        row(
            "MaxConnections",
            values.max_connections.to_string(),
            "Connections the session may have",
        ),
        row(
            "ErrorRecoveryLevel",
            values.error_recovery_level.to_string(),
            recovery(values.error_recovery_level),
        ),
        row(
            "DefaultTime2Wait",
            format!("{} s", values.time_to_wait),
            "Pause before a lost connection is replaced",
        ),
        row(
            "DefaultTime2Retain",
            format!("{} s", values.time_to_retain),
            "How long commands of a lost connection are kept after that",
        ),
        row(
            "DataPDUInOrder",
            yes_no(values.data_pdu_in_order),
            "PDUs of a sequence come in order",
        ),
        row(
            "DataSequenceInOrder",
            yes_no(values.data_sequence_in_order),
            "Sequences of a command come in order",
        ),
        row(
            "iSCSIProtocolLevel",
            values.protocol_level.to_string(),
            "2 and above: the additional features of RFC 7144",
        ),
    ]
}

/// With thousands apart, since these are compared by eye.
fn bytes(count: u32) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text.push_str(" bytes");
    text
}

fn yes_no(value: bool) -> String {
    if value { "Yes" } else { "No" }.to_owned()
}

const fn recovery(level: u8) -> &'static str {
    match level {
        0 => "After an error the session begins anew",
        1 => "Lost PDUs are asked for again",
        _ => "Lost PDUs are asked for again, lost connections replaced",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_their_thousands_apart() {
        assert_eq!(bytes(0), "0 bytes");
        assert_eq!(bytes(262_144), "262\u{202f}144 bytes");
        assert_eq!(bytes(1_048_576), "1\u{202f}048\u{202f}576 bytes");
    }
}
