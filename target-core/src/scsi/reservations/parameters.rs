//! Parameter lists of PERSISTENT RESERVE OUT taken apart (SPC-4 §6.16.3, §6.16.4). Whom a TransportID means is found
//! out by the command, which knows the device.

use super::transport_id::TransportId;
use crate::scsi::{Failure, Sense};

/// The list of every service action but REGISTER AND MOVE.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct BasicList {
    /// RESERVATION KEY.
    pub(crate) key: u64,
    /// SERVICE ACTION RESERVATION KEY.
    pub(crate) action_key: u64,
    /// With SPEC_I_PT: whom the TransportIDs name, and where in the list they are.
    pub(crate) specified: Option<Vec<(TransportId, u16)>>,
    /// ALL_TG_PT.
    pub(crate) all_target_ports: bool,
    /// APTPL.
    pub(crate) aptpl: bool,
}

impl BasicList {
    /// A whole list. `may_specify` is for REGISTER, the only service action that SPEC_I_PT belongs to.
    pub(crate) fn parse(list: &[u8], may_specify: bool) -> Result<Self, Failure> {
        let head = list
            .first_chunk::<BASIC_LEN>()
            .ok_or(Sense::PARAMETER_LIST_LENGTH_ERROR)?;
        let flags = head[FLAGS];
        let specified = if flags & SPEC_I_PT == 0 {
            if list.len() != BASIC_LEN {
                return Err(Sense::PARAMETER_LIST_LENGTH_ERROR.into());
            }
            None
        } else if may_specify {
            Some(transport_ids(list)?)
        } else {
            return Err(Sense::INVALID_FIELD_IN_PARAMETER_LIST
                .in_parameters(20, Some(3))
                .into());
        };
        Ok(Self {
            key: key_at(head, 0),
            action_key: key_at(head, 8),
            specified,
            all_target_ports: flags & ALL_TG_PT != 0,
            aptpl: flags & APTPL != 0,
        })
    }
}

/// The list of REGISTER AND MOVE.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct MoveList {
    /// RESERVATION KEY.
    pub(crate) key: u64,
    /// SERVICE ACTION RESERVATION KEY.
    pub(crate) action_key: u64,
    /// UNREG.
    pub(crate) unregister: bool,
    /// APTPL.
    pub(crate) aptpl: bool,
    /// RELATIVE TARGET PORT IDENTIFIER.
    pub(crate) relative_port: u16,
    /// The one TransportID, as it stands in the list: it is read when everything before it is in order.
    transport_id: Vec<u8>,
}

impl MoveList {
    /// A whole list.
    pub(crate) fn parse(list: &[u8]) -> Result<Self, Failure> {
        let head = list
            .first_chunk::<BASIC_LEN>()
            .ok_or(Sense::PARAMETER_LIST_LENGTH_ERROR)?;
        let len = u32::from_be_bytes([head[20], head[21], head[22], head[23]]);
        let transport_id = &list[BASIC_LEN..];
        if usize::try_from(len) != Ok(transport_id.len()) {
            return Err(Sense::PARAMETER_LIST_LENGTH_ERROR.into());
        }
        Ok(Self {
            key: key_at(head, 0),
            action_key: key_at(head, 8),
            unregister: head[17] & UNREG != 0,
            aptpl: head[17] & APTPL != 0,
            relative_port: u16::from_be_bytes([head[18], head[19]]),
            transport_id: transport_id.to_vec(),
        })
    }

    /// Whom the TransportID names. One TransportID, and nothing behind it.
    pub(crate) fn destination(&self) -> Result<TransportId, Failure> {
        let (named, len) = TransportId::parse(&self.transport_id, BASIC_LEN_U16)?;
        if usize::from(len) != self.transport_id.len() {
            return Err(Sense::INVALID_FIELD_IN_PARAMETER_LIST
                .in_parameters(20, None)
                .into());
        }
        Ok(named)
    }
}

fn transport_ids(list: &[u8]) -> Result<Vec<(TransportId, u16)>, Failure> {
    let len = list
        .get(BASIC_LEN..)
        .and_then(<[u8]>::first_chunk::<4>)
        .ok_or(Sense::PARAMETER_LIST_LENGTH_ERROR)?;
    let mut rest = &list[BASIC_LEN + 4..];
    if usize::try_from(u32::from_be_bytes(*len)) != Ok(rest.len()) {
        return Err(Sense::PARAMETER_LIST_LENGTH_ERROR.into());
    }
    let mut found = Vec::new();
    while !rest.is_empty() {
        let at = u16::try_from(list.len() - rest.len()).map_err(|_| Sense::PARAMETER_LIST_LENGTH_ERROR)?;
        let (named, len) = TransportId::parse(rest, at)?;
        found.push((named, at));
        rest = &rest[usize::from(len)..];
    }
    Ok(found)
}

fn key_at(head: &[u8; BASIC_LEN], at: usize) -> u64 {
    let mut key = [0; 8];
    key.copy_from_slice(&head[at..at + 8]);
    u64::from_be_bytes(key)
}

const BASIC_LEN: usize = 24;
const BASIC_LEN_U16: u16 = 24;
/// The byte with the flags of the basic list.
const FLAGS: usize = 20;
const SPEC_I_PT: u8 = 0x08;
const ALL_TG_PT: u8 = 0x04;
const APTPL: u8 = 0x01;
/// In byte 17 of REGISTER AND MOVE's list, beside APTPL.
const UNREG: u8 = 0x02;

#[cfg(test)]
mod tests {
    use super::*;

    fn basic(flags: u8, rest: &[u8]) -> Vec<u8> {
        let mut list = vec![0; 24];
        (list[7], list[15], list[20]) = (1, 2, flags);
        list.extend(rest);
        list
    }

    fn id() -> Vec<u8> {
        [&[0x05, 0, 0, 20][..], b"iqn.2024-01.a.b:c\0\0\0"].concat()
    }

    /// The code, and byte and bit pointed at.
    type Wrong = ((u8, u8), Option<(u16, Option<u8>)>);

    fn sense<T: std::fmt::Debug>(parsed: Result<T, Failure>) -> Wrong {
        match parsed {
            Err(Failure::Check(sense)) => (sense.code, sense.field.map(|field| (field.byte, field.bit))),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_basic_list_has_24_bytes_and_no_other_length() {
        let list = BasicList::parse(&basic(0x05, &[]), false).unwrap();
        assert_eq!((list.key, list.action_key), (1, 2));
        assert!(list.aptpl && list.all_target_ports);
        assert_eq!(list.specified, None);
        for len in 0..24 {
            assert_eq!(sense(BasicList::parse(&basic(0, &[])[..len], true)).0, (0x1a, 0));
        }
        assert_eq!(sense(BasicList::parse(&basic(0, &[0]), true)).0, (0x1a, 0));
    }

    #[test]
    fn transport_ids_fill_the_length_that_was_said() {
        let two = [&[0, 0, 0, 48][..], &id(), &id()].concat();
        let list = BasicList::parse(&basic(0x08, &two), true).unwrap();
        let places: Vec<u16> = list.specified.unwrap().into_iter().map(|(_, at)| at).collect();
        assert_eq!(places, [28, 52]);
        let none = BasicList::parse(&basic(0x08, &[0, 0, 0, 0]), true).unwrap();
        assert_eq!(none.specified, Some(Vec::new()));
        for wrong in [
            vec![],
            vec![0, 0, 0],
            [&[0, 0, 0, 48][..], &id()].concat(),
            [&[0, 0, 0, 20][..], &id()].concat(),
            [&[0, 0, 0, 28][..], &id(), &[5, 0, 0, 20]].concat(),
            vec![0xff, 0xff, 0xff, 0xff],
        ] {
            assert_eq!(
                sense(BasicList::parse(&basic(0x08, &wrong), true)).0,
                (0x1a, 0),
                "{wrong:02x?}"
            );
        }
    }

    #[test]
    fn only_register_names_other_initiator_ports() {
        let parsed = BasicList::parse(&basic(0x08, &[0, 0, 0, 0]), false);
        assert_eq!(sense(parsed), ((0x26, 0), Some((20, Some(3)))));
    }

    #[test]
    fn the_list_of_a_move_has_one_transport_id() {
        let mut list = vec![0; 24];
        (list[7], list[15], list[17], list[19], list[23]) = (1, 2, 3, 4, 24);
        list.extend(id());
        let parsed = MoveList::parse(&list).unwrap();
        assert_eq!((parsed.key, parsed.action_key, parsed.relative_port), (1, 2, 4));
        assert!(parsed.unregister && parsed.aptpl);
        assert!(parsed.destination().is_ok());
        assert_eq!(sense(MoveList::parse(&list[..47])).0, (0x1a, 0));
        list[23] = 48;
        list.extend(id());
        let parsed = MoveList::parse(&list).unwrap();
        assert_eq!(sense(parsed.destination()), ((0x26, 0), Some((20, None))));
    }
}
