//! JSON pointers (RFC 6901) of the members that a scheme leaves out.

use crate::limits::{POINTER_LEN_MAX, POINTERS_MAX};
use crate::{Error, Result};

/// A parsed pointer: the names on the way, escapes decoded, at least one.
pub(super) type Path = Vec<String>;

/// The parsed pointers, in their order; Invalid if there are too many, or one is too long or malformed.
pub(super) fn parse_all<P: AsRef<str>>(pointers: &[P]) -> Result<Vec<Path>> {
    if pointers.len() > POINTERS_MAX {
        return Err(Error::invalid(format!(
            "a scheme leaves out at most {POINTERS_MAX} JSON pointers; point at a common parent instead"
        )));
    }
    pointers.iter().map(|pointer| parse(pointer.as_ref())).collect()
}

/// Invalid unless the pointers are sorted and without repeats: two orders would be two fingerprints.
pub(super) fn check_order(pointers: &[String]) -> Result<()> {
    if pointers.is_sorted_by(|a, b| a < b) {
        return Ok(());
    }
    Err(Error::invalid("a scheme's JSON pointers are not in order; make the scheme with Scheme::json"))
}

fn parse(pointer: &str) -> Result<Path> {
    if pointer.len() > POINTER_LEN_MAX {
        return Err(Error::invalid(format!(
            "a JSON pointer has at most {POINTER_LEN_MAX} bytes; shorten it"
        )));
    }
    let Some(names) = pointer.strip_prefix('/') else {
        return Err(Error::invalid(
            "a JSON pointer starts with a slash and names a member, as in /meta/sent_at; \
             the whole document cannot be left out",
        ));
    };
    names.split('/').map(unescaped).collect()
}

fn unescaped(name: &str) -> Result<String> {
    let mut text = String::with_capacity(name.len());
    let mut chars = name.chars();
    while let Some(char) = chars.next() {
        let char = match char {
            '~' => match chars.next() {
                Some('0') => '~',
                Some('1') => '/',
                _ => {
                    return Err(Error::invalid(
                        "a tilde in a JSON pointer is written ~0, and a slash in a name ~1",
                    ));
                }
            },
            other => other,
        };
        text.push(char);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(pointers: &[&str]) -> bool {
        let pointers: Vec<String> = pointers.iter().map(ToString::to_string).collect();
        parse_all(&pointers).is_err()
    }

    #[test]
    fn wrong_syntax_and_the_whole_document_are_refused() {
        for pointer in ["", "a", "#/a", "/a~", "/a~2", "/~"] {
            assert!(refused(&[pointer]), "{pointer}");
        }
        assert!(refused(&[&format!("/{}", "a".repeat(POINTER_LEN_MAX))]));
        assert!(!refused(&[&format!("/{}", "a".repeat(POINTER_LEN_MAX - 1))]));
        assert!(refused(&["/a"; POINTERS_MAX + 1]));
        assert!(!refused(&["/a"; POINTERS_MAX]));
    }

    #[test]
    fn escapes_are_decoded_once() {
        assert_eq!(parse("/a~1b/m~0n/~01/").expect("valid"), ["a/b", "m~n", "~1", ""]);
    }
}
