//! What blanks secrets in the text of logins as it streams by, whichever way it is cut into PDUs.
//!
//! It parses no text, because what is to be traced may be broken in any way: after `CHAP_` and whatever follows it up to
//! `=` everything is blanked until the next NUL, unless the key is CHAP_A, which names an algorithm. The keys of the other
//! methods of RFC 7143 §12.1 are treated alike.

/// Blanks one direction of a connection.
#[derive(Debug, Default)]
pub(super) struct Veil {
    state: State,
    /// The bytes that came last, in capitals.
    window: [u8; WINDOW],
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum State {
    /// Nothing that has to be hidden.
    #[default]
    Open,
    /// Behind `CHAP_`.
    Key,
    /// Behind `CHAP_A`.
    KeyWithA,
    /// In a value that is hidden.
    Hidden,
}

impl Veil {
    /// Blanks what must not be seen of the next piece of text.
    pub(super) fn cover(&mut self, text: &mut [u8]) {
        text.iter_mut().for_each(|byte| self.pass(byte));
    }

    fn pass(&mut self, byte: &mut u8) {
        self.window.rotate_left(1);
        self.window[WINDOW - 1] = byte.to_ascii_uppercase();
        let begins_key = KEYS.iter().any(|key| self.window.ends_with(key));
        self.state = match (self.state, *byte) {
            (_, 0) => State::Open,
            (State::Open, _) if begins_key => State::Key,
            (State::Open, _) | (State::KeyWithA, b'=') => State::Open,
            (State::Key, b'A' | b'a') if self.window.ends_with(b"CHAP_A") => State::KeyWithA,
            // The name of the key is shown as far as it is one letter, as all are that have a value to hide.
            (State::Key, letter) if letter.is_ascii_alphabetic() => {
                self.state = State::Hidden;
                return;
            }
            (State::Key | State::KeyWithA | State::Hidden, _) => State::Hidden,
        };
        if self.state == State::Hidden && *byte != b'=' {
            *byte = BLANK;
        }
    }
}

/// As many bytes as the longest key that is looked for, and one letter.
const WINDOW: usize = 6;
const KEYS: [&[u8]; 4] = [b"CHAP_", b"KRB_", b"SPKM_", b"SRP_"];
const BLANK: u8 = b'*';

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn covered(pieces: &[&[u8]]) -> String {
        let mut veil = Veil::default();
        let mut out = Vec::new();
        for piece in pieces {
            let mut piece = piece.to_vec();
            veil.cover(&mut piece);
            out.extend(piece);
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn values_of_chap_are_blanked_and_everything_else_is_not() {
        let text = b"CHAP_N=user\0CHAP_R=0x1234\0CHAP_A=5\0AuthMethod=CHAP,None\0CHAP_I=7\0CHAP_C=0bAA=\0";
        assert_eq!(
            covered(&[text]),
            "CHAP_N=****\0CHAP_R=******\0CHAP_A=5\0AuthMethod=CHAP,None\0CHAP_I=*\0CHAP_C=****=\0"
        );
    }

    #[test]
    fn text_that_breaks_the_rules_hides_its_secrets_as_well() {
        assert_eq!(covered(&[b"chap_r=0x12"]), "chap_r=****");
        assert_eq!(
            covered(&[b"AuthMethod=CHAP CHAP_R=0x12"]),
            "AuthMethod=CHAP CHAP_R=****"
        );
        assert_eq!(covered(&[b"CHAP_A=5 CHAP_R=0x12\0"]), "CHAP_A=5 CHAP_R=****\0");
        assert_eq!(covered(&[b"CHAP_R:0x12\0"]), "CHAP_R*****\0");
        assert_eq!(covered(&[b"CHAP_ R=0x12\0"]), "CHAP_**=****\0");
        assert_eq!(covered(&[b"CHAP_AR=0x12\0"]), "CHAP_A*=****\0");
        assert_eq!(covered(&[b"CHAP_CHAP_R=0x12\0"]), "CHAP_C*****=****\0");
        assert_eq!(covered(&[b"CHAP_R=a=b\0"]), "CHAP_R=*=*\0");
        assert_eq!(covered(&[b"SRP_M=0x12\0X=1\0"]), "SRP_M=****\0X=1\0");
    }

    proptest! {
        #[test]
        fn however_a_text_is_cut_the_secret_stays_hidden(cuts in prop::collection::vec(0_usize..48, 0..6)) {
            let text = b"InitiatorName=iqn.x\0CHAP_N=joe\0CHAP_R=0x5ec7e7\0A=b\0";
            let mut cuts = cuts;
            cuts.sort_unstable();
            let (mut pieces, mut at): (Vec<&[u8]>, usize) = (Vec::new(), 0);
            for cut in cuts {
                pieces.push(&text[at..cut]);
                at = cut;
            }
            pieces.push(&text[at..]);
            prop_assert_eq!(covered(&pieces), "InitiatorName=iqn.x\0CHAP_N=***\0CHAP_R=********\0A=b\0");
        }
    }
}
