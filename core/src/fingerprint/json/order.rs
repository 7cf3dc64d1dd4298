//! Puts members in order once the whole text is written.
//!
//! Sorting each object where it ends would copy an inner one again for every level around it. So an object
//! out of order only notes where its members are, and all are moved in one go.

use std::ops::Range;

/// An object whose members were not written in order.
pub(super) struct Moved {
    /// Where it is, brackets included.
    pub(super) span: Range<usize>,
    /// Its members as they should follow each other, without commas.
    pub(super) members: Vec<Range<usize>>,
}

/// The text with the members of these objects in order.
pub(super) fn in_order(text: Vec<u8>, mut moved: Vec<Moved>) -> Vec<u8> {
    if moved.is_empty() {
        return text;
    }
    moved.sort_unstable_by_key(|object| object.span.start);
    let whole = 0..text.len();
    let mut out = Vec::with_capacity(text.len());
    Ordering { text: &text, moved: &moved }.copy(whole, &mut out);
    out
}

struct Ordering<'a> {
    text: &'a [u8],
    moved: &'a [Moved],
}

impl Ordering<'_> {
    /// Copies a part of the text; nests no deeper than the text does.
    fn copy(&self, part: Range<usize>, out: &mut Vec<u8>) {
        let mut at = part.start;
        while let Some(object) = self.first_from(at).filter(|object| object.span.start < part.end) {
            self.copy_plain(at..object.span.start, out);
            for (index, member) in object.members.iter().enumerate() {
                out.push(if index == 0 { b'{' } else { b',' });
                self.copy(member.clone(), out);
            }
            out.push(b'}');
            at = object.span.end;
        }
        self.copy_plain(at..part.end, out);
    }

    fn first_from(&self, at: usize) -> Option<&Moved> {
        self.moved.get(self.moved.partition_point(|object| object.span.start < at))
    }

    fn copy_plain(&self, part: Range<usize>, out: &mut Vec<u8>) {
        out.extend_from_slice(self.text.get(part).expect("spans are places in the text written so far"));
    }
}
