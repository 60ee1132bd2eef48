//! One SCSI command of a script: how it is sent, and everything that came of it.

use iscsi_proto::pdu::{DataIn, DataOut, R2t, Request, Residual, Response, ScsiCommand, TaskAttribute};
use iscsi_proto::{Itt, Sn, Ttt};

use super::{Initiator, Pdu};

/// A command being described. Nothing is sent before [`run`](Self::run) or [`start`](Self::start).
#[derive(Debug)]
pub struct Command<'a> {
    initiator: &'a mut Initiator,
    pdu: ScsiCommand,
    ahs: Vec<u8>,
    out: Vec<u8>,
    immediate_len: usize,
    unsolicited_len: usize,
    piece_len: usize,
}

/// What came of a command.
#[derive(Clone, Debug)]
pub struct End {
    /// SAM-5 status.
    pub status: u8,
    /// What was announced and did not move, or the reverse.
    pub residual: Residual,
    /// Data-In, put together.
    pub data: Vec<u8>,
    /// Sense data, without their length.
    pub sense: Vec<u8>,
    /// Data-In PDUs in order.
    pub data_ins: Vec<DataIn>,
    /// R2Ts in order.
    pub r2ts: Vec<R2t>,
    /// ExpDataSN of the response; `None` when the status came with data.
    pub exp_data_sn: Option<u32>,
}

impl<'a> Command<'a> {
    pub(super) fn new(initiator: &'a mut Initiator, cdb: [u8; 16]) -> Self {
        let pdu = ScsiCommand {
            immediate: false,
            is_final: true,
            read: false,
            write: false,
            attribute: TaskAttribute::Simple,
            priority: 0,
            lun: initiator.lun,
            itt: initiator.itt(),
            expected_len: 0,
            cmd_sn: initiator.cmd_sn,
            exp_stat_sn: initiator.exp_stat_sn,
            cdb,
        };
        Self {
            initiator,
            pdu,
            ahs: Vec::new(),
            out: Vec::new(),
            immediate_len: 0,
            unsolicited_len: 0,
            piece_len: 65_536,
        }
    }

    /// It has room for so many bytes of Data-In.
    #[must_use]
    pub fn read(mut self, expected_len: u32) -> Self {
        self.pdu.read = true;
        self.pdu.expected_len = expected_len;
        self
    }

    /// It has these bytes of Data-Out, as many as are asked for.
    #[must_use]
    pub fn write(mut self, data: &[u8]) -> Self {
        self.pdu.write = true;
        self.pdu.expected_len = u32::try_from(data.len()).expect("short data");
        self.out = data.to_vec();
        self
    }

    /// So many of them come with the command.
    #[must_use]
    pub fn immediate_data(self, len: usize) -> Self {
        Self {
            immediate_len: len,
            ..self
        }
    }

    /// So many follow unasked.
    #[must_use]
    pub fn unsolicited_data(mut self, len: usize) -> Self {
        self.pdu.is_final = len == 0;
        self.unsolicited_len = len;
        self
    }

    /// No Data-Out PDU has more bytes than this.
    #[must_use]
    pub fn in_pieces_of(self, len: usize) -> Self {
        Self {
            piece_len: len,
            ..self
        }
    }

    /// With these additional header segments.
    #[must_use]
    pub fn ahs(self, ahs: &[u8]) -> Self {
        Self {
            ahs: ahs.to_vec(),
            ..self
        }
    }

    /// For immediate delivery.
    #[must_use]
    pub fn at_once(mut self) -> Self {
        self.pdu.immediate = true;
        self
    }

    /// With whatever else a script changes in the header.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut ScsiCommand)) -> Self {
        change(&mut self.pdu);
        self
    }

    /// The bytes of it, for a script that spoils them. Nothing is sent.
    #[must_use]
    pub fn bytes(self) -> Vec<u8> {
        let immediate = &self.out[..self.immediate_len];
        self.initiator
            .encode(&Request::ScsiCommand(self.pdu.clone()), immediate)
    }

    /// Sends it, and what comes with it; its tag and CmdSN.
    pub async fn start(self) -> (Itt, Sn) {
        let (itt, cmd_sn) = (self.pdu.itt, self.pdu.cmd_sn);
        self.begin().await;
        (itt, cmd_sn)
    }

    /// Sends it, answers every R2T, and hears it to its end.
    ///
    /// # Panics
    /// When something comes that is not of this command.
    pub async fn run(self) -> End {
        let (itt, out, piece_len) = (self.pdu.itt, self.out.clone(), self.piece_len);
        self.begin().await.end_of(itt, &out, piece_len).await
    }

    async fn begin(self) -> &'a mut Initiator {
        let Self {
            initiator, pdu, out, ..
        } = self;
        if !pdu.immediate && pdu.cmd_sn == initiator.cmd_sn {
            initiator.cmd_sn.advance();
        }
        let (itt, immediate) = (pdu.itt, &out[..self.immediate_len]);
        initiator
            .send_bhs(Request::ScsiCommand(pdu).encode(), &self.ahs, immediate)
            .await;
        let unsolicited = self.immediate_len..self.immediate_len + self.unsolicited_len;
        initiator
            .data_out(itt, Ttt::RESERVED, &out, unsolicited, self.piece_len)
            .await;
        initiator
    }
}

impl Initiator {
    /// Hears a command to its end; `out` is what its R2Ts ask for.
    ///
    /// # Panics
    /// When something comes that is not of this command, or breaks a rule of Data-In.
    pub async fn end_of(&mut self, itt: Itt, out: &[u8], piece_len: usize) -> End {
        let mut end = End {
            status: 0xff,
            residual: Residual::None,
            data: Vec::new(),
            sense: Vec::new(),
            data_ins: Vec::new(),
            r2ts: Vec::new(),
            exp_data_sn: None,
        };
        loop {
            let Some(Pdu { response, data }) = self.hear().await else {
                panic!("the target closed the connection during command {itt}");
            };
            assert_eq!(response.itt(), itt, "{response:?}");
            match response {
                Response::R2t(r2t) => {
                    let start = usize::try_from(r2t.offset).expect("32 bits fit");
                    let len = usize::try_from(r2t.desired_len).expect("32 bits fit");
                    self.data_out(itt, r2t.ttt, out, start..start + len, piece_len)
                        .await;
                    end.r2ts.push(r2t);
                }
                Response::DataIn(pdu) => {
                    assert_eq!(usize::try_from(pdu.offset), Ok(end.data.len()), "{pdu:?}");
                    assert_eq!(usize::try_from(pdu.data_sn), Ok(end.data_ins.len()), "{pdu:?}");
                    end.data.extend(data);
                    let status = pdu.status;
                    end.data_ins.push(pdu);
                    if let Some(status) = status {
                        (end.status, end.residual) = (status.status, status.residual);
                        return end;
                    }
                }
                Response::ScsiResponse(pdu) => {
                    (end.status, end.residual) = (pdu.status, pdu.residual);
                    end.exp_data_sn = Some(pdu.exp_data_sn);
                    end.sense = data.get(2..).unwrap_or_default().to_vec();
                    return end;
                }
                other => panic!("{other:?} came during command {itt}"),
            }
        }
    }

    /// Sends one sequence of Data-Out: this part of `out`.
    pub async fn data_out(
        &mut self,
        itt: Itt,
        ttt: Ttt,
        out: &[u8],
        part: std::ops::Range<usize>,
        piece_len: usize,
    ) {
        let pieces = out[part.clone()].chunks(piece_len).enumerate();
        for (data_sn, piece) in pieces {
            let offset = part.start + data_sn * piece_len;
            let pdu = DataOut {
                is_final: offset + piece.len() == part.end,
                lun: self.lun,
                itt,
                ttt,
                exp_stat_sn: self.exp_stat_sn,
                data_sn: u32::try_from(data_sn).expect("few pieces"),
                offset: u32::try_from(offset).expect("short data"),
            };
            self.send(Request::DataOut(pdu), piece).await;
        }
    }
}

impl End {
    /// The command ended with GOOD.
    ///
    /// # Panics
    /// When it did not.
    #[track_caller]
    pub fn good(self) -> Self {
        assert_eq!(self.status, 0x00, "{self:?}");
        self
    }

    /// The command ended with CHECK CONDITION: sense key, additional sense code and qualifier.
    ///
    /// # Panics
    /// When it did not.
    #[track_caller]
    #[must_use]
    pub fn sense(&self) -> (u8, u8, u8) {
        assert_eq!(self.status, 0x02, "{self:?}");
        match self.sense.first().map(|byte| byte & 0x7f) {
            Some(0x70) => (self.sense[2] & 0x0f, self.sense[12], self.sense[13]),
            Some(0x72) => (self.sense[1] & 0x0f, self.sense[2], self.sense[3]),
            _ => panic!("no sense data: {self:?}"),
        }
    }
}
