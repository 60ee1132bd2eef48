//! What `--set` takes, refuses and says about it.

use std::time::Duration;

use super::Parameters;

fn set(key: &str, value: &str) -> Result<Parameters, String> {
    let mut parameters = Parameters::default();
    match parameters.set(key, value) {
        Ok(()) => Ok(parameters),
        Err(error) => {
            assert_eq!(
                parameters,
                Parameters::default(),
                "{key}={value} changed something"
            );
            Err(error.to_string())
        }
    }
}

#[test]
fn keys_of_the_standard_are_set_whatever_their_case() {
    assert!(!set("InitialR2T", "No").unwrap().initial_r2t);
    assert!(!set("initialr2t", "no").unwrap().initial_r2t);
    assert!(!set("immediatedata", "off").unwrap().immediate_data);
    assert_eq!(set("MaxOutstandingR2T", "4").unwrap().max_outstanding_r2t, 4);
    assert_eq!(set("DefaultTime2Wait", "0").unwrap().time_to_wait, 0);
    assert_eq!(
        set("DefaultTime2Retain", "3600").unwrap().time_to_retain,
        Some(3600)
    );
    assert_eq!(set("iscsiprotocollevel", "2").unwrap().protocol_level, 2);
    assert_eq!(set("command-window", "32").unwrap().command_window, 32);
    assert_eq!(set("Max-Sessions", "8").unwrap().max_sessions, 8);
}

#[test]
fn sizes_have_units_of_1024() {
    assert_eq!(set("MaxBurstLength", "65536").unwrap().max_burst_len, 65_536);
    assert_eq!(set("FirstBurstLength", "256K").unwrap().first_burst_len, 262_144);
    assert_eq!(
        set("MaxRecvDataSegmentLength", "1MiB")
            .unwrap()
            .max_recv_data_segment_len,
        1_048_576
    );
    assert_eq!(set("MaxBurstLength", "16M").unwrap().max_burst_len, 16_777_215);
}

#[test]
fn times_are_seconds_unless_they_say_otherwise() {
    let time = |value| set("login-timeout", value).unwrap().login_timeout;
    assert_eq!(time("7"), Duration::from_secs(7));
    assert_eq!(time("1500ms"), Duration::from_millis(1500));
    assert_eq!(time("2m"), Duration::from_secs(120));
    assert_eq!(time("1h"), Duration::from_secs(3600));
    assert_eq!(set("nop-interval", "0").unwrap().nop_interval, Duration::ZERO);
    assert_eq!(
        set("data-out-timeout", "5s").unwrap().data_out_timeout,
        Duration::from_secs(5)
    );
}

#[test]
fn digests_are_a_set_of_two() {
    assert_eq!(
        set("HeaderDigest", "CRC32C,None").unwrap().header_digest,
        [true, false]
    );
    assert_eq!(set("DataDigest", "crc32c").unwrap().data_digest, [true]);
    assert_eq!(
        set("DataDigest", "None,None").unwrap_err(),
        "DataDigest=None,None: names None twice"
    );
}

#[test]
fn a_wrong_value_is_told_what_would_be_right_and_changes_nothing() {
    let size = "wants a size from 512 to 16777215 bytes, such as 65536, 256K or 1M";
    let time = "wants a time from 1s to 1h, such as 15, 500ms or 2m";
    for (key, value, problem) in [
        ("InitialR2T", "maybe", "wants Yes or No"),
        (
            "HeaderDigest",
            "MD5",
            "wants CRC32C, None, or both with a comma between",
        ),
        (
            "HeaderDigest",
            "",
            "wants CRC32C, None, or both with a comma between",
        ),
        ("MaxBurstLength", "511", size),
        ("MaxBurstLength", "16777217", size),
        ("MaxBurstLength", "4096M", size),
        ("MaxBurstLength", "K", size),
        ("MaxBurstLength", "-1", size),
        ("MaxOutstandingR2T", "0", "wants a number from 1 to 65535"),
        ("MaxOutstandingR2T", "65536", "wants a number from 1 to 65535"),
        ("DefaultTime2Wait", "3601", "wants a number from 0 to 3600"),
        ("iSCSIProtocolLevel", "3", "wants a number from 1 to 2"),
        ("command-window", "0", "wants a number from 1 to 4096"),
        ("login-timeout", "0", time),
        ("login-timeout", "999ms", time),
        ("login-timeout", "2h", time),
        ("login-timeout", "5 years", time),
        ("login-timeout", "99999999999999999999", time),
        ("login-timeout", "ü", time),
    ] {
        assert_eq!(set(key, value).unwrap_err(), format!("{key}={value}: {problem}"));
    }
}

#[test]
fn an_unknown_name_is_told_which_names_there_are() {
    let message = set("LoginTimeout", "5").unwrap_err();
    assert!(
        message.starts_with("LoginTimeout=5: no such parameter; there are HeaderDigest, "),
        "{message}"
    );
    assert!(message.contains("login-timeout"), "{message}");
}

#[test]
fn sessions_are_retained_where_something_can_be_taken_up_again() {
    assert_eq!(Parameters::default().retains(), 0);
    assert_eq!(set("MaxConnections", "2").unwrap().retains(), 20);
    assert_eq!(set("ErrorRecoveryLevel", "2").unwrap().retains(), 20);
    let mut told = set("ErrorRecoveryLevel", "2").unwrap();
    told.set("DefaultTime2Retain", "0").unwrap();
    assert_eq!(told.retains(), 0);
}

#[test]
fn every_name_has_help_and_is_there_once() {
    let names: Vec<_> = Parameters::names().collect();
    for (name, help) in &names {
        assert!(!help.is_empty(), "{name}");
        assert_eq!(
            names.iter().filter(|(other, _)| other == name).count(),
            1,
            "{name}"
        );
    }
    assert_eq!(names.len(), 21);
}
