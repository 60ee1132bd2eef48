//! What the syntax of text keys takes, refuses and writes.

use proptest::prelude::*;

use super::*;

fn pair(key: &str, value: &str) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: value.to_owned(),
    }
}

#[test]
fn pairs_come_out_in_order_and_split_at_the_first_equal_sign() {
    assert_eq!(
        parse_pairs(b"InitiatorName=iqn.2024-01.org.example:a\0CHAP_R=0bAA==\0SendTargets=\0"),
        Ok(vec![
            pair("InitiatorName", "iqn.2024-01.org.example:a"),
            pair("CHAP_R", "0bAA=="),
            pair("SendTargets", ""),
        ])
    );
    assert_eq!(parse_pairs(b""), Ok(vec![]));
}

#[test]
fn names_of_extension_keys_are_names() {
    for key in ["X-com.example.depth", "X#NodeArchitecture", "iSCSIProtocolLevel"] {
        assert_eq!(
            parse_pairs(format!("{key}=1\0").as_bytes()),
            Ok(vec![pair(key, "1")])
        );
    }
}

#[test]
fn broken_text_is_refused_by_name() {
    assert_eq!(parse_pairs(b"A=1"), Err(TextError::NotTerminated));
    assert_eq!(parse_pairs(b"A=1\0\0"), Err(TextError::NotTerminated));
    assert_eq!(parse_pairs(b"\0"), Err(TextError::NotTerminated));
    assert_eq!(parse_pairs(b"A\0"), Err(TextError::NoEqualSign("A".to_owned())));
    assert_eq!(parse_pairs(b"=1\0"), Err(TextError::KeyName(String::new())));
    assert_eq!(parse_pairs(b"A B=1\0"), Err(TextError::KeyName("A B".to_owned())));
    assert_eq!(parse_pairs(b"A=\xff\0"), Err(TextError::NotUtf8));
}

#[test]
fn keys_have_63_bytes_and_values_8192() {
    let text = |key: usize, value: usize| format!("{}={}\0", "K".repeat(key), "v".repeat(value));
    assert!(parse_pairs(text(63, 8192).as_bytes()).is_ok());
    assert!(matches!(
        parse_pairs(text(64, 1).as_bytes()),
        Err(TextError::KeyName(_))
    ));
    assert_eq!(
        parse_pairs(text(1, 8193).as_bytes()),
        Err(TextError::ValueTooLong("K".to_owned()))
    );
}

#[test]
fn numbers_are_decimal_or_hexadecimal_and_fit_64_bits() {
    for (value, expected) in [
        ("0", 0),
        ("262144", 262_144),
        ("0x10", 16),
        ("0XfF", 255),
        ("18446744073709551615", u64::MAX),
    ] {
        assert_eq!(parse_number(value), Ok(expected));
    }
    for value in [
        "",
        "-1",
        "+1",
        "007",
        " 1",
        "1 ",
        "0x",
        "0xg",
        "1k",
        "18446744073709551616",
        "0x10000000000000000",
    ] {
        assert_eq!(
            parse_number(value).map_err(|error| error.wanted),
            Err("a number"),
            "{value:?}"
        );
    }
}

#[test]
fn booleans_are_spelled_exactly() {
    assert_eq!(parse_boolean("Yes"), Ok(true));
    assert_eq!(parse_boolean("No"), Ok(false));
    for value in ["yes", "", "1", "Yes,No"] {
        assert_eq!(
            parse_boolean(value).map_err(|error| error.to_string()),
            Err(format!("{value:?} is not Yes or No"))
        );
    }
}

#[test]
fn ranges_do_not_run_backwards() {
    assert_eq!(parse_range("512~0x1000"), Ok((512, 4096)));
    assert_eq!(parse_range("5~5"), Ok((5, 5)));
    for value in ["6~5", "5", "5~", "~5", "1~2~3"] {
        assert!(parse_range(value).is_err(), "{value:?}");
    }
}

#[test]
fn lists_keep_their_order_and_have_no_holes() {
    assert_eq!(parse_list("CRC32C,None"), Ok(vec!["CRC32C", "None"]));
    assert_eq!(parse_list("None"), Ok(vec!["None"]));
    for value in ["", ",", "None,", ",None", "a,,b"] {
        assert!(parse_list(value).is_err(), "{value:?}");
    }
}

#[test]
fn binary_values_have_three_spellings() {
    for (value, expected) in [
        ("0x0a0B", &[0x0a, 0x0b][..]),
        ("0Xabc", &[0x0a, 0xbc]),
        ("0bCgs=", &[0x0a, 0x0b]),
        ("0BCgsM", &[0x0a, 0x0b, 0x0c]),
        ("2571", &[0x0a, 0x0b]),
        ("0", &[0]),
    ] {
        assert_eq!(parse_binary(value, 3).as_deref(), Ok(expected), "{value:?}");
    }
    for value in [
        "", "0x", "0b", "0xzz", "0b*", "0bCgs", "0bCgt=", "zz", "0x+1", "0b=", "0b====",
    ] {
        assert_eq!(
            parse_binary(value, 100).map_err(|error| error.wanted),
            Err("a binary value"),
            "{value:?}"
        );
    }
}

#[test]
fn a_binary_value_beyond_the_limit_is_refused_even_if_it_could_not_be_decoded() {
    let long_rubbish = "!".repeat(2050);
    for value in [
        "0x010203",
        "0bAQID",
        "66051",
        &format!("0x{long_rubbish}"),
        &format!("0b{long_rubbish}"),
    ] {
        assert_eq!(
            parse_binary(value, 2).map_err(|error| error.wanted),
            Err("short enough"),
            "{value:?}"
        );
    }
    assert_eq!(parse_binary("0bAQI=", 2), Ok(vec![1, 2]));
}

#[test]
fn errors_quote_only_the_beginning() {
    assert_eq!(parse_number(&"x".repeat(1000)).unwrap_err().value.len(), 64);
}

#[test]
fn an_empty_text_is_one_last_segment() {
    let all: Vec<_> = segments(b"", 512).collect();
    assert_eq!(
        all,
        [TextSegment {
            bytes: b"",
            continues: false
        }]
    );
}

#[test]
fn a_text_of_exactly_one_segment_does_not_continue() {
    let all: Vec<_> = segments(b"abcd", 4).collect();
    assert_eq!(
        all,
        [TextSegment {
            bytes: b"abcd",
            continues: false
        }]
    );
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_taken_apart_or_refused(text in proptest::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(pairs) = parse_pairs(&text) {
            let mut again = Vec::new();
            for KeyValue { key, value } in &pairs {
                push_pair(&mut again, key, value);
            }
            prop_assert_eq!(again, text);
        }
    }

    #[test]
    fn arbitrary_values_never_panic_and_never_exceed_the_limit(
        value in "(0x|0b|0X)?[0-9a-zA-Z+/=~,\\PC]{0,40}",
        limit in 0_usize..20,
    ) {
        let _ = (parse_number(&value), parse_boolean(&value), parse_range(&value), parse_list(&value));
        if let Ok(bytes) = parse_binary(&value, limit) {
            prop_assert!(bytes.len() <= limit);
        }
    }

    #[test]
    fn written_pairs_are_read_back(
        pairs in proptest::collection::vec(("[A-Za-z][A-Za-z0-9.@_+#-]{0,62}", "[^\0]{0,40}"), 0..8),
    ) {
        let mut text = Vec::new();
        for (key, value) in &pairs {
            push_pair(&mut text, key, value);
        }
        let expected: Vec<_> = pairs.iter().map(|(key, value)| pair(key, value)).collect();
        prop_assert_eq!(parse_pairs(&text), Ok(expected));
    }

    #[test]
    fn written_binary_values_are_read_back(bytes in proptest::collection::vec(any::<u8>(), 1..100)) {
        prop_assert_eq!(parse_binary(&format_hex(&bytes), bytes.len()), Ok(bytes.clone()));
        prop_assert_eq!(parse_binary(&format_base64(&bytes), bytes.len()), Ok(bytes));
    }

    #[test]
    fn segments_fit_and_join_to_the_text(
        text in proptest::collection::vec(any::<u8>(), 0..200),
        max_len in 1_usize..50,
    ) {
        let all: Vec<_> = segments(&text, max_len).collect();
        let joined: Vec<u8> = all.iter().flat_map(|segment| segment.bytes).copied().collect();
        prop_assert_eq!(&joined, &text);
        let (last, earlier) = all.split_last().expect("at least one segment");
        prop_assert!(!last.continues);
        prop_assert!(earlier.iter().all(|segment| segment.continues && segment.bytes.len() == max_len));
        prop_assert!(last.bytes.len() <= max_len);
    }
}
