//! The iSER header (RFC 7145 §9.1 to §9.4): 28 bytes in front of every message. Pure.

use crate::fabric::Remote;

/// Length of the header, bytes.
pub const HEADER_LEN: usize = 28;

/// What a message is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum IserHeader {
    /// An iSCSI PDU follows (§9.2). A SCSI Command brings the places of its data in the initiator's memory.
    Control {
        /// Where Data-In go.
        read: Option<Remote>,
        /// Where Data-Out are.
        write: Option<Remote>,
    },
    /// The initiator's first message of full feature phase, where both want it.
    Hello(Hello),
    /// The answer.
    HelloReply(HelloReply),
}

/// The iSER Hello message (§9.3).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Hello {
    /// Highest version of the sender.
    pub max_version: u8,
    /// Lowest version of the sender.
    pub min_version: u8,
    /// RDMA READs that the initiator serves at once.
    pub inbound_reads: u16,
}

/// The iSER HelloReply message (§9.4).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HelloReply {
    /// No version suits both.
    pub rejected: bool,
    /// Highest version of the sender.
    pub max_version: u8,
    /// The version that is spoken from now on.
    pub version: u8,
    /// RDMA READs that the target has under way at once.
    pub outbound_reads: u16,
}

/// A header that cannot be one.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum StrangeHeader {
    /// The message ends within the header.
    #[error("a message of {0} bytes has no room for an iSER header")]
    Short(usize),
    /// A message type that RFC 7145 does not know.
    #[error("iSER header with unknown type {0:#x}")]
    Type(u8),
    /// Hello and HelloReply are a header and nothing else (§10.1.3.3).
    #[error("an iSER Hello of {0} bytes, which has to have 28")]
    HelloLength(usize),
}

impl IserHeader {
    /// Reads the header of a message. Reserved bits are ignored.
    pub fn decode(message: &[u8]) -> Result<Self, StrangeHeader> {
        let Some(header) = message.first_chunk::<HEADER_LEN>() else {
            return Err(StrangeHeader::Short(message.len()));
        };
        let kind = header[0] & TYPE_MASK;
        if matches!(kind, HELLO | HELLO_REPLY) && message.len() != HEADER_LEN {
            return Err(StrangeHeader::HelloLength(message.len()));
        }
        match kind {
            CONTROL => Ok(Self::Control {
                write: (header[0] & WRITE_VALID != 0).then(|| remote(&header[4..16])),
                read: (header[0] & READ_VALID != 0).then(|| remote(&header[16..28])),
            }),
            HELLO => Ok(Self::Hello(Hello {
                max_version: header[1] >> 4,
                min_version: header[1] & 0x0f,
                inbound_reads: u16::from_be_bytes([header[2], header[3]]),
            })),
            HELLO_REPLY => Ok(Self::HelloReply(HelloReply {
                rejected: header[0] & REJECTED != 0,
                max_version: header[1] >> 4,
                version: header[1] & 0x0f,
                outbound_reads: u16::from_be_bytes([header[2], header[3]]),
            })),
            unknown => Err(StrangeHeader::Type(unknown >> 4)),
        }
    }

    /// Writes the header.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut header = [0; HEADER_LEN];
        match self {
            Self::Control { read, write } => {
                header[0] = CONTROL;
                if let Some(write) = write {
                    header[0] |= WRITE_VALID;
                    put_remote(&mut header[4..16], *write);
                }
                if let Some(read) = read {
                    header[0] |= READ_VALID;
                    put_remote(&mut header[16..28], *read);
                }
            }
            Self::Hello(hello) => {
                header[0] = HELLO;
                header[1] = hello.max_version << 4 | hello.min_version & 0x0f;
                header[2..4].copy_from_slice(&hello.inbound_reads.to_be_bytes());
            }
            Self::HelloReply(reply) => {
                header[0] = HELLO_REPLY | if reply.rejected { REJECTED } else { 0 };
                header[1] = reply.max_version << 4 | reply.version & 0x0f;
                header[2..4].copy_from_slice(&reply.outbound_reads.to_be_bytes());
            }
        }
        header
    }
}

fn remote(field: &[u8]) -> Remote {
    let (stag, at) = field
        .split_first_chunk()
        .expect("twelve bytes: a tag and an offset");
    let at = at.first_chunk().expect("twelve bytes: a tag and an offset");
    Remote {
        stag: u32::from_be_bytes(*stag),
        at: u64::from_be_bytes(*at),
    }
}

fn put_remote(field: &mut [u8], remote: Remote) {
    field[..4].copy_from_slice(&remote.stag.to_be_bytes());
    field[4..].copy_from_slice(&remote.at.to_be_bytes());
}

const TYPE_MASK: u8 = 0xf0;
const CONTROL: u8 = 0x10;
const HELLO: u8 = 0x20;
const HELLO_REPLY: u8 = 0x30;
/// WSV: the write STag and its base offset are valid.
const WRITE_VALID: u8 = 0x08;
/// RSV: the read STag and its base offset are valid.
const READ_VALID: u8 = 0x04;
/// REJ of a HelloReply.
const REJECTED: u8 = 0x01;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_names_its_place_in_the_first_fields() {
        let header = IserHeader::Control {
            read: None,
            write: Some(Remote {
                stag: 0x0102_0304,
                at: 0x1112_1314_1516_1718,
            }),
        };
        let bytes = header.encode();
        assert_eq!(
            bytes,
            [
                0x18, 0, 0, 0, 1, 2, 3, 4, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0, 0, 0, 0, 0, 0,
                0, 0, 0, 0, 0, 0
            ]
        );
        assert_eq!(IserHeader::decode(&bytes), Ok(header));
    }

    #[test]
    fn a_read_names_its_place_in_the_last_fields() {
        let header = IserHeader::Control {
            read: Some(Remote { stag: 7, at: 9 }),
            write: None,
        };
        let bytes = header.encode();
        assert_eq!((bytes[0], bytes[19], bytes[27]), (0x14, 7, 9));
        assert_eq!(IserHeader::decode(&bytes), Ok(header));
    }

    #[test]
    fn hello_and_its_reply_have_their_own_layouts() {
        let hello = IserHeader::Hello(Hello {
            max_version: 10,
            min_version: 9,
            inbound_reads: 4,
        });
        let bytes = hello.encode();
        assert_eq!(bytes[..4], [0x20, 0xa9, 0, 4]);
        assert_eq!(IserHeader::decode(&bytes), Ok(hello));
        let reply = IserHeader::HelloReply(HelloReply {
            rejected: true,
            max_version: 10,
            version: 10,
            outbound_reads: 0x102,
        });
        let bytes = reply.encode();
        assert_eq!(bytes[..4], [0x31, 0xaa, 1, 2]);
        assert_eq!(IserHeader::decode(&bytes), Ok(reply));
    }

    #[test]
    fn what_is_no_header_is_named() {
        assert_eq!(IserHeader::decode(&[0x10; 27]), Err(StrangeHeader::Short(27)));
        assert_eq!(IserHeader::decode(&[0x40; 28]), Err(StrangeHeader::Type(4)));
        for kind in [0x20, 0x30] {
            assert_eq!(
                IserHeader::decode(&[kind; 29]),
                Err(StrangeHeader::HelloLength(29))
            );
        }
    }
}
