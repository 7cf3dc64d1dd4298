//! Canonical JSON: one sequence of bytes for all spellings of one value.
//!
//! The reader is our own because none at hand keeps what has to be compared. `serde_json` turns numbers
//! into floats unless a feature is on that changes it for every crate of the program, and reading them
//! as raw values scans a text once for each level it is nested in. Here one pass reads and writes, and
//! a second one, where members were out of order, moves them: time n log n, memory a small multiple of n.

use std::borrow::Cow;
use std::ops::Range;

use super::pointer;
use crate::Result;
use crate::limits::JSON_DEPTH_MAX;

mod number;
mod order;
mod scan;

use order::Moved;
use scan::Scanner;

/// The one byte form of a JSON value, without the members that these RFC 6901 pointers name.
///
/// Two payloads have equal bytes only if they are the same value: members in any order, spacing and escapes
/// in any spelling, numbers by their exact decimal value. The form, itself JSON in UTF-8:
///
/// - no space between tokens; members by the code points of their names, at every depth; arrays in order
/// - a number is its digits without leading or trailing zeros, and `e` with a power of ten if that is not
///   zero: `1.0` is `1`, `100` is `1e2`, `0.25` is `25e-2`, `-0` is `0`
/// - a string is its code points as they are, without normalisation; escaped are `"`, `\`, and what is below
///   U+0020: as `\b`, `\t`, `\n`, `\f`, `\r`, else as `\u` and four lower-case hex digits
/// - a member or an element that a pointer names is left out with its name, though it has to be valid
///
/// ```
/// # fn main() -> keyclaim::Result<()> {
/// use keyclaim::fingerprint::canonical_json;
///
/// let first = canonical_json(br#"{"amount": 10.50, "to": "x", "sent_at": 1}"#, &["/sent_at"])?;
/// let again = canonical_json(br#"{"sent_at":2,"to":"\u0078","amount":1.05e1}"#, &["/sent_at"])?;
/// assert_eq!(first, br#"{"amount":105e-1,"to":"x"}"#);
/// assert_eq!(first, again);
/// # Ok(())
/// # }
/// ```
///
/// It is not RFC 8785, which reads numbers as floats and so takes two large amounts for one.
///
/// Invalid, with the place and no content, if the bytes are not one JSON value in UTF-8 without a byte
/// order mark; if an object has two members of one name, however spelled; if a string has half a surrogate
/// pair; if arrays and objects are nested deeper than 128; if a number other than zero has a power of ten
/// beyond 10^17; or if a pointer is malformed (see [`Scheme::json`](super::Scheme::json)).
pub fn canonical_json<P: AsRef<str>>(json: &[u8], without: &[P]) -> Result<Vec<u8>> {
    let paths = pointer::parse_all(without)?;
    let paths: Vec<&[String]> = paths.iter().map(Vec::as_slice).collect();
    let mut canonical =
        Canonical { scan: Scanner::new(json)?, out: Vec::with_capacity(json.len()), moved: Vec::new() };
    canonical.value(&paths, 0)?;
    canonical.scan.end()?;
    Ok(order::in_order(canonical.out, canonical.moved))
}

struct Canonical<'a> {
    scan: Scanner<'a>,
    /// The canonical form, but for objects whose members came out of order.
    out: Vec<u8>,
    /// Those objects.
    moved: Vec<Moved>,
}

impl<'a> Canonical<'a> {
    /// Reads one value and writes it; `paths` are what is left of the pointers that lead here.
    fn value(&mut self, paths: &[&[String]], depth: usize) -> Result<()> {
        match self.scan.peek() {
            Some(b'{') => self.object(paths, self.deeper(depth)?),
            Some(b'[') => self.array(paths, self.deeper(depth)?),
            Some(b'"') => {
                let text = self.scan.string()?;
                scan::push_string(&mut self.out, &text);
                Ok(())
            }
            Some(b'-' | b'0'..=b'9') => {
                let at = self.scan.at();
                let text = self.scan.number()?;
                number::push(&mut self.out, text)
                    .ok_or_else(|| scan::fault("a number is too large or too small", at))
            }
            _ => {
                let word = self.scan.word()?;
                self.out.extend_from_slice(word.as_bytes());
                Ok(())
            }
        }
    }

    fn array(&mut self, paths: &[&[String]], depth: usize) -> Result<()> {
        self.open(b'[')?;
        let mut kept = 0_usize;
        for index in 0_usize.. {
            if index == 0 && self.scan.take(b']') {
                break;
            }
            // As text, since only the plain form of an index is one (RFC 6901, section 4).
            let name = if paths.is_empty() { String::new() } else { index.to_string() };
            let (here, left_out) = step(paths, &name);
            if self.kept(kept, &here, left_out, depth, |_| ())?.is_some() {
                kept += 1;
            }
            if self.scan.more(b']')? {
                break;
            }
        }
        self.out.push(b']');
        Ok(())
    }

    fn object(&mut self, paths: &[&[String]], depth: usize) -> Result<()> {
        let start = self.out.len();
        self.open(b'{')?;
        let mut members: Vec<(Cow<'a, str>, Option<Range<usize>>)> = Vec::new();
        let mut kept = 0_usize;
        let mut done = self.scan.take(b'}');
        while !done {
            let name = self.scan.name()?;
            let (here, left_out) = step(paths, &name);
            let span = self.kept(kept, &here, left_out, depth, |out| {
                scan::push_string(out, &name);
                out.push(b':');
            })?;
            kept += usize::from(span.is_some());
            members.push((name, span));
            done = self.scan.more(b'}')?;
        }
        self.out.push(b'}');
        members.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        if members.windows(2).any(|pair| matches!(pair, [(a, _), (b, _)] if a == b)) {
            return Err(self.scan.fault("an object has two members of one name"));
        }
        let spans: Vec<_> = members.into_iter().filter_map(|(_, span)| span).collect();
        if !spans.is_sorted_by_key(|span| span.start) {
            self.moved.push(Moved { span: start..self.out.len(), members: spans });
        }
        Ok(())
    }

    /// Reads one member or element and writes it with what goes before it. Its place, unless left out.
    fn kept(
        &mut self,
        before: usize,
        paths: &[&[String]],
        left_out: bool,
        depth: usize,
        head: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Option<Range<usize>>> {
        let (out_len, moved_len) = (self.out.len(), self.moved.len());
        if before > 0 {
            self.out.push(b',');
        }
        let start = self.out.len();
        head(&mut self.out);
        self.value(paths, depth)?;
        if left_out {
            self.out.truncate(out_len);
            self.moved.truncate(moved_len);
            return Ok(None);
        }
        Ok(Some(start..self.out.len()))
    }

    fn open(&mut self, bracket: u8) -> Result<()> {
        self.scan.expect(bracket, "a bracket is missing")?;
        self.out.push(bracket);
        Ok(())
    }

    fn deeper(&self, depth: usize) -> Result<usize> {
        if depth < JSON_DEPTH_MAX { Ok(depth + 1) } else { Err(self.scan.fault("it is nested too deep")) }
    }
}

/// Follows pointers one name further: what is left of those that go on, and whether one ends here.
fn step<'p>(paths: &[&'p [String]], name: &str) -> (Vec<&'p [String]>, bool) {
    let mut here = Vec::new();
    let mut ends = false;
    for path in paths {
        if let Some((first, rest)) = path.split_first()
            && first == name
        {
            ends |= rest.is_empty();
            here.push(rest);
        }
    }
    (here, ends)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(json: &str, without: &[&str]) -> String {
        let bytes = canonical_json(json.as_bytes(), without).expect("valid");
        String::from_utf8(bytes).expect("JSON is UTF-8")
    }

    #[test]
    fn members_are_in_order_at_every_depth_and_arrays_in_theirs() {
        assert_eq!(
            form(r#" {"b" : [{"d":1,"c":{"z":0,"y":[2, 1]}}], "a":true} "#, &[]),
            r#"{"a":true,"b":[{"c":{"y":[2,1],"z":0},"d":1}]}"#
        );
        assert_eq!(form(r#"{"B":1,"a":2,"":3,"\uff00":4,"\ud800\udc00":5}"#, &[]).matches(',').count(), 4);
    }

    #[test]
    fn pointers_leave_out_members_and_elements_at_any_depth() {
        let json = r#"{"z":{"t":1,"s":2},"list":[{"t":1},{"t":2},3],"a/b":{"~":1},"":0}"#;
        assert_eq!(form(json, &["/z/t", "/list/0/t", "/list/2", "/a~1b/~0", "/"]), {
            r#"{"a/b":{},"list":[{},{"t":2}],"z":{"s":2}}"#
        });
        assert_eq!(form(json, &["/none", "/z/t/x", "/list/9", "/list/-", "/list/00"]), form(json, &[]));
        assert_eq!(form("3", &["/a"]), "3");
    }

    #[test]
    fn what_is_left_out_has_to_be_valid_and_counts_as_a_name() {
        for json in [r#"{"t":1,"t":2}"#, r#"{"t":{"a":1,"a":1}}"#, r#"{"t":tru}"#] {
            assert!(canonical_json(json.as_bytes(), &["/t"]).is_err(), "{json}");
        }
    }

    #[test]
    fn nesting_is_bounded_at_128() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert_eq!(form(&nested(128), &[]), nested(128));
        assert!(canonical_json(nested(129).as_bytes(), &[""; 0]).is_err());
        assert!(canonical_json("[".repeat(1 << 20).as_bytes(), &[""; 0]).is_err());
    }

    #[test]
    fn a_message_names_the_place_and_never_the_content() {
        let error = canonical_json(br#"{"secret":hunter2}"#, &[""; 0]).expect_err("not JSON");
        assert_eq!(error.kind(), crate::ErrorKind::Invalid);
        assert!(error.message().contains("byte 10"), "{error}");
        assert!(!error.message().contains("secret") && !error.message().contains("hunter2"), "{error}");
    }
}
