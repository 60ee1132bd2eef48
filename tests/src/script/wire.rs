//! PDUs as bytes on a socket, at the initiator's end: nothing is checked before it is sent, everything after it came.

use iscsi_proto::pdu::Response;
use iscsi_proto::{BHS_LEN, Frame, crc32c};
use tokio::io::{AsyncRead, AsyncReadExt};

/// Which digests are in use.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Digests {
    /// Over headers.
    pub header: bool,
    /// Over data.
    pub data: bool,
}

/// A PDU of the target.
#[derive(Clone, Debug)]
pub struct Pdu {
    /// Its header.
    pub response: Response,
    /// Its data segment, without padding.
    pub data: Vec<u8>,
}

/// The bytes of a PDU: lengths, padding and digests are put in.
#[must_use]
pub(super) fn encode(mut bhs: [u8; BHS_LEN], ahs: &[u8], data: &[u8], digests: Digests) -> Vec<u8> {
    let frame = Frame {
        ahs_len: ahs.len(),
        data_len: data.len(),
    };
    frame.stamp(&mut bhs);
    let mut bytes = bhs.to_vec();
    bytes.extend(ahs);
    if digests.header {
        bytes.extend(crc32c(&bytes));
    }
    let segment = bytes.len();
    bytes.extend(data);
    bytes.resize(bytes.len() + frame.padding(), 0);
    if digests.data && !data.is_empty() {
        let digest = crc32c(&bytes[segment..]);
        bytes.extend(digest);
    }
    bytes
}

/// Reads a PDU; `None` when the connection ends before its first byte.
pub(super) async fn read(
    socket: &mut (impl AsyncRead + Unpin),
    digests: Digests,
) -> std::io::Result<Option<Pdu>> {
    let mut bhs = [0; BHS_LEN];
    if socket.read(&mut bhs[..1]).await? == 0 {
        return Ok(None);
    }
    socket.read_exact(&mut bhs[1..]).await?;
    let frame = Frame::of(&bhs);
    assert_eq!(frame.ahs_len, 0, "a target sends no additional header segments");
    if digests.header {
        assert_eq!(digest(socket).await?, crc32c(&bhs), "header digest");
    }
    let mut data = vec![0; frame.data_len + frame.padding()];
    socket.read_exact(&mut data).await?;
    if digests.data && frame.data_len > 0 {
        assert_eq!(digest(socket).await?, crc32c(&data), "data digest");
    }
    assert!(
        data[frame.data_len..].iter().all(|byte| *byte == 0),
        "padding is zero"
    );
    data.truncate(frame.data_len);
    let response = Response::decode(&bhs).expect("a target sends valid headers");
    Ok(Some(Pdu { response, data }))
}

async fn digest(socket: &mut (impl AsyncRead + Unpin)) -> std::io::Result<[u8; 4]> {
    let mut digest = [0; 4];
    socket.read_exact(&mut digest).await?;
    Ok(digest)
}
