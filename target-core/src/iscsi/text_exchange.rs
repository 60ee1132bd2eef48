//! Text Requests over several PDUs (RFC 7143 §11.10, §11.11): collecting what is continued, answering in segments.

use iscsi_proto::pdu::TextRequest;
use iscsi_proto::{Itt, Ttt};

/// The one exchange that a connection may have under way.
#[derive(Debug, Default)]
pub(super) struct TextExchange {
    under_way: Option<UnderWay>,
    last_ttt: u32,
}

#[derive(Debug)]
struct UnderWay {
    itt: Itt,
    ttt: Ttt,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    Collecting(Vec<u8>),
    Answering(Vec<u8>),
}

/// What to do with a request.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum TextStep {
    /// The text is complete: answer it, and hand the answer to [`TextExchange::segment`].
    Complete(Vec<u8>),
    /// Send an empty response with this tag: the initiator goes on.
    More(Ttt),
    /// Send the next segment of the answer.
    GoOn,
    /// The request fits nothing.
    Refused(&'static str),
}

/// A piece of an answer.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Segment {
    pub(super) text: Vec<u8>,
    pub(super) is_final: bool,
    pub(super) continues: bool,
    pub(super) ttt: Ttt,
}

impl TextExchange {
    pub(super) fn request(&mut self, pdu: &TextRequest, text: &[u8]) -> TextStep {
        if pdu.is_final && pdu.continues {
            return self.refuse("a Text Request has both F and C set");
        }
        if pdu.ttt == Ttt::RESERVED {
            // §11.10.4: a request without a tag starts anew and ends what was under way.
            return self.collect(pdu, Vec::new(), text);
        }
        match self.under_way.take() {
            Some(UnderWay { itt, ttt, phase }) if itt == pdu.itt && ttt == pdu.ttt => match phase {
                Phase::Collecting(collected) => self.collect(pdu, collected, text),
                Phase::Answering(rest) => {
                    self.under_way = Some(UnderWay {
                        itt,
                        ttt,
                        phase: Phase::Answering(rest),
                    });
                    TextStep::GoOn
                }
            },
            _ => self.refuse("a Text Request names an exchange that is not under way"),
        }
    }

    /// The next piece of an answer, at most `max` bytes. `answer` begins one.
    pub(super) fn segment(&mut self, pdu: &TextRequest, answer: Option<Vec<u8>>, max: usize) -> Segment {
        let mut text = answer.unwrap_or_else(|| match self.under_way.take() {
            Some(UnderWay {
                phase: Phase::Answering(rest),
                ..
            }) => rest,
            _ => Vec::new(),
        });
        let rest = text.split_off(max.min(text.len()));
        let continues = !rest.is_empty();
        // A final answer to a request that is not final would be a protocol error of ours (§11.11.1).
        let is_final = pdu.is_final && !continues;
        let ttt = if is_final {
            self.under_way = None;
            Ttt::RESERVED
        } else {
            self.begin(
                pdu.itt,
                if continues {
                    Phase::Answering(rest)
                } else {
                    Phase::Collecting(Vec::new())
                },
            )
        };
        Segment {
            text,
            is_final,
            continues,
            ttt,
        }
    }

    fn collect(&mut self, pdu: &TextRequest, mut collected: Vec<u8>, text: &[u8]) -> TextStep {
        if collected.len() + text.len() > TEXT_MAX {
            return self.refuse("the text is longer than 64 KiB");
        }
        collected.extend_from_slice(text);
        if pdu.continues {
            return TextStep::More(self.begin(pdu.itt, Phase::Collecting(collected)));
        }
        self.under_way = None;
        TextStep::Complete(collected)
    }

    fn begin(&mut self, itt: Itt, phase: Phase) -> Ttt {
        self.last_ttt = self.last_ttt.wrapping_add(1) & 0x7fff_ffff;
        let ttt = Ttt(self.last_ttt);
        self.under_way = Some(UnderWay { itt, ttt, phase });
        ttt
    }

    fn refuse(&mut self, why: &'static str) -> TextStep {
        self.under_way = None;
        TextStep::Refused(why)
    }
}

/// Text collected at most, bytes.
const TEXT_MAX: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use iscsi_proto::{Lun, Sn};

    use super::*;

    fn request(ttt: Ttt, is_final: bool, continues: bool) -> TextRequest {
        TextRequest {
            immediate: true,
            is_final,
            continues,
            lun: Lun::ZERO,
            itt: Itt(3),
            ttt,
            cmd_sn: Sn(1),
            exp_stat_sn: Sn(1),
        }
    }

    #[test]
    fn a_continued_text_is_put_together() {
        let mut exchange = TextExchange::default();
        let TextStep::More(ttt) = exchange.request(&request(Ttt::RESERVED, false, true), b"SendTar") else {
            panic!("the text is not complete");
        };
        let step = exchange.request(&request(ttt, true, false), b"gets=All\0");
        assert_eq!(step, TextStep::Complete(b"SendTargets=All\0".to_vec()));
    }

    #[test]
    fn a_long_answer_goes_out_in_segments() {
        let mut exchange = TextExchange::default();
        let first = exchange.segment(&request(Ttt::RESERVED, true, false), Some(b"abcdef".to_vec()), 4);
        assert_eq!(
            (first.text.as_slice(), first.is_final, first.continues),
            (&b"abcd"[..], false, true)
        );
        let next = request(first.ttt, true, false);
        assert_eq!(exchange.request(&next, b""), TextStep::GoOn);
        let last = exchange.segment(&next, None, 4);
        assert_eq!(
            last,
            Segment {
                text: b"ef".to_vec(),
                is_final: true,
                continues: false,
                ttt: Ttt::RESERVED
            }
        );
        assert!(matches!(exchange.request(&next, b""), TextStep::Refused(_)));
    }

    #[test]
    fn endless_text_is_refused() {
        let mut exchange = TextExchange::default();
        let mut ttt = Ttt::RESERVED;
        for _ in 0..16 {
            let TextStep::More(next) = exchange.request(&request(ttt, false, true), &[b'a'; 4096]) else {
                panic!("refused too early");
            };
            ttt = next;
        }
        assert!(matches!(
            exchange.request(&request(ttt, false, true), b"a"),
            TextStep::Refused(_)
        ));
    }
}
