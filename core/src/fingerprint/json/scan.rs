//! The tokens of a JSON text (RFC 8259), read from front to back in one pass.

use std::borrow::Cow;

use crate::{Error, Result};

/// Reads tokens. Every method but `at` and `fault` skips the space in front of what it looks for.
pub(super) struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scanner<'a> {
    /// Starts at the first byte; Invalid unless the bytes are UTF-8 without a byte order mark.
    pub(super) fn new(bytes: &'a [u8]) -> Result<Self> {
        let text =
            std::str::from_utf8(bytes).map_err(|error| fault("it is not UTF-8", error.valid_up_to()))?;
        if text.starts_with('\u{feff}') {
            return Err(fault("it starts with a byte order mark", 0));
        }
        Ok(Self { text, at: 0 })
    }

    /// The byte the next token starts with.
    pub(super) fn peek(&mut self) -> Option<u8> {
        self.skip_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'));
        self.byte()
    }

    /// Goes on if the next token is this byte.
    pub(super) fn take(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    /// Goes past this byte, or fails.
    pub(super) fn expect(&mut self, byte: u8, otherwise: &str) -> Result<()> {
        if self.take(byte) { Ok(()) } else { Err(self.fault(otherwise)) }
    }

    /// After a member or an element: whether the closing bracket follows; else goes past a comma.
    pub(super) fn more(&mut self, close: u8) -> Result<bool> {
        if self.take(close) {
            return Ok(true);
        }
        self.expect(b',', "a comma or a closing bracket is missing")?;
        Ok(false)
    }

    /// The name of a member, and past its colon.
    pub(super) fn name(&mut self) -> Result<Cow<'a, str>> {
        let name = self.string()?;
        self.expect(b':', "a colon is missing")?;
        Ok(name)
    }

    /// A string, decoded.
    pub(super) fn string(&mut self) -> Result<Cow<'a, str>> {
        self.expect(b'"', "a string is missing")?;
        let mut text = Cow::Borrowed("");
        loop {
            let plain = self.skip_while(|byte| !matches!(byte, b'"' | b'\\' | 0..=0x1f));
            if text.is_empty() {
                text = Cow::Borrowed(plain);
            } else {
                text.to_mut().push_str(plain);
            }
            match self.byte() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(text);
                }
                Some(b'\\') => {
                    self.at += 1;
                    text.to_mut().push(self.escape()?);
                }
                Some(_) => return Err(self.fault("a control character is not escaped")),
                None => return Err(self.fault("a string does not end")),
            }
        }
    }

    /// A number as it is written.
    pub(super) fn number(&mut self) -> Result<&'a str> {
        self.peek();
        let start = self.at;
        self.at += usize::from(self.byte() == Some(b'-'));
        if self.byte() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.byte() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.byte() {
            self.at += 1;
            self.at += usize::from(matches!(self.byte(), Some(b'+' | b'-')));
            self.digits()?;
        }
        Ok(self.text.get(start..self.at).expect("a number is ASCII"))
    }

    /// One of the three words that JSON has.
    pub(super) fn word(&mut self) -> Result<&'static str> {
        self.peek();
        let rest = self.rest();
        let word = ["true", "false", "null"].into_iter().find(|word| rest.starts_with(word.as_bytes()));
        let word = word.ok_or_else(|| self.fault("a value is missing"))?;
        self.at += word.len();
        Ok(word)
    }

    /// Fails unless nothing follows.
    pub(super) fn end(&mut self) -> Result<()> {
        if self.peek().is_none() { Ok(()) } else { Err(self.fault("something follows the value")) }
    }

    /// The place of the next byte.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// What is wrong here.
    pub(super) fn fault(&self, what: &str) -> Error {
        fault(what, self.at)
    }

    fn escape(&mut self) -> Result<char> {
        let byte = self.byte();
        self.at += 1;
        Ok(match byte {
            Some(byte @ (b'"' | b'\\' | b'/')) => char::from(byte),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.code_point(),
            _ => return Err(self.fault("an escape does not exist")),
        })
    }

    fn code_point(&mut self) -> Result<char> {
        let first = self.hex()?;
        let code = match first {
            0xd800..=0xdbff if self.rest().starts_with(b"\\u") => {
                self.at += 2;
                let second = self.hex()?;
                // Below the range it wraps to far above it; either way no pair.
                let low = second.wrapping_sub(0xdc00);
                if low > 0x3ff {
                    return Err(self.fault("half a surrogate pair"));
                }
                0x1_0000 + ((first - 0xd800) << 10) + low
            }
            other => other,
        };
        char::from_u32(code).ok_or_else(|| self.fault("half a surrogate pair"))
    }

    fn hex(&mut self) -> Result<u32> {
        let mut code = 0;
        for _ in 0..4 {
            let digit = self.byte().and_then(|byte| char::from(byte).to_digit(16));
            code = code * 16 + digit.ok_or_else(|| self.fault("an escape has no four hex digits"))?;
            self.at += 1;
        }
        Ok(code)
    }

    fn digits(&mut self) -> Result<()> {
        if self.skip_while(u8::is_ascii_digit).is_empty() {
            return Err(self.fault("a digit is missing"));
        }
        Ok(())
    }

    fn skip_while(&mut self, is_part: impl Fn(&u8) -> bool) -> &'a str {
        let len = self.rest().iter().position(|byte| !is_part(byte)).unwrap_or(self.rest().len());
        let part = self.text.get(self.at..self.at + len).expect("tokens end at ASCII bytes");
        self.at += len;
        part
    }

    fn byte(&self) -> Option<u8> {
        self.rest().first().copied()
    }

    fn rest(&self) -> &'a [u8] {
        self.text.as_bytes().get(self.at..).unwrap_or_default()
    }
}

/// Writes a string with the escapes that the canonical form has.
pub(super) fn push_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            0x08 => out.extend_from_slice(b"\\b"),
            b'\t' => out.extend_from_slice(b"\\t"),
            b'\n' => out.extend_from_slice(b"\\n"),
            0x0c => out.extend_from_slice(b"\\f"),
            b'\r' => out.extend_from_slice(b"\\r"),
            0..=0x1f => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}

/// What is wrong there.
pub(super) fn fault(what: &str, at: usize) -> Error {
    Error::invalid(format!(
        "the payload has no canonical JSON form: {what} (byte {at}); send one JSON value in UTF-8, \
         or compare such requests by their raw bytes"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(json: &str) -> Result<String> {
        Scanner::new(json.as_bytes())?.string().map(Cow::into_owned)
    }

    #[test]
    fn escapes_are_decoded_and_written_in_one_way() {
        let text = decoded(r#""\u0061\/\"\\\b\f\n\r\t\u001F\u007f\ud83d\uDE00""#).expect("valid");
        assert_eq!(text, "a/\"\\\u{8}\u{c}\n\r\t\u{1f}\u{7f}\u{1f600}");
        let mut out = Vec::new();
        push_string(&mut out, &text);
        assert_eq!(out, "\"a/\\\"\\\\\\b\\f\\n\\r\\t\\u001f\u{7f}\u{1f600}\"".as_bytes());
    }

    #[test]
    fn half_a_pair_and_a_broken_escape_are_refused() {
        for json in [
            r#""\ud800""#,
            r#""\udc00""#,
            r#""\ud800x""#,
            r#""\ud800\n""#,
            r#""\ud800\ud800""#,
            r#""\ud800\ue000""#,
            r#""\udc00\ud800""#,
            r#""\u12""#,
            r#""\u+123""#,
            r#""\x""#,
            "\"\\",
            "\"\\u",
            "\"",
            "\"\n\"",
            "\"\\\u{e9}\"",
        ] {
            assert!(decoded(json).is_err(), "{json}");
        }
    }

    #[test]
    fn bytes_that_are_no_utf8_and_a_mark_are_refused() {
        for bytes in [&b"\"\xff\""[..], b"\"\xed\xa0\x80\"", b"\xef\xbb\xbf1", b"1\x00", b"\"\xc0\x80\""] {
            let read = super::super::canonical_json(bytes, &[""; 0]);
            assert!(read.is_err(), "{bytes:?}");
        }
        let error = Scanner::new(b"\xef\xbb\xbf1").err().expect("a mark");
        assert!(error.message().contains("byte order mark"), "{error}");
    }
}
