//! What holds for every scope, key, header and payload.

use std::fmt::Write;
use std::time::{Duration, Instant};

use keyclaim::fingerprint::{Request, Scheme, canonical_json};
use keyclaim::key::header::{HEADER_NAME, HeaderMode, HeaderRule};
use keyclaim::{Id, Key, Scope};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

proptest! {
    // A failure prints the smallest input; write it into the vectors instead of into a file of seeds.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_id_is_decoded_from_what_it_was_encoded_to(scope in bytes(255), key in bytes(1024)) {
        let id = id(&scope, &key);
        let decoded = Id::decode(&id.encode()).expect("well-formed");
        prop_assert_eq!(decoded.scope().as_bytes(), &scope);
        prop_assert_eq!(decoded.key().as_bytes(), &key);
    }

    /// Bytes of two kinds and few of them, so that many pairs differ only in where the border is.
    #[test]
    fn two_ids_never_share_their_bytes_and_a_range_holds_only_its_scope(
        scope in near(), key in near(), other_scope in near(), other_key in near(),
    ) {
        let (id, other) = (id(&scope, &key), id(&other_scope, &other_key));
        prop_assert_eq!(id.encode() == other.encode(), (&scope, &key) == (&other_scope, &other_key));
        prop_assert_eq!(id.short_hash() == other.short_hash(), id == other);
        prop_assert_eq!(id.scope().range().contains(&other.encode()), scope == other_scope);
    }

    #[test]
    fn decoding_anything_gives_an_id_of_those_bytes_or_an_error(stored in vec(any::<u8>(), 0..1400)) {
        if let Ok(id) = Id::decode(&stored) {
            prop_assert_eq!(id.encode(), stored);
        }
    }

    #[test]
    fn quoted_and_bare_are_one_key(text in "[!#-+\\--:<-\\[\\]-~]{1,255}") {
        let quoted = format!("\"{text}\"");
        let bare = read(HeaderMode::Lenient, text.as_bytes());
        prop_assert_eq!(bare.as_ref().map(Key::as_bytes), Some(text.as_bytes()));
        prop_assert_eq!(&bare, &read(HeaderMode::Lenient, quoted.as_bytes()));
        prop_assert_eq!(&bare, &read(HeaderMode::Strict, quoted.as_bytes()));
    }

    /// Whatever strict takes, lenient takes as the same key; and nothing panics.
    #[test]
    fn lenient_only_adds_to_strict(line in "[\"\\\\a-c ,;=\\t\\x00\u{e9}]{0,12}") {
        let lenient = read(HeaderMode::Lenient, line.as_bytes());
        if let Some(key) = read(HeaderMode::Strict, line.as_bytes()) {
            prop_assert_eq!(Some(key), lenient);
        } else if let Some(key) = lenient {
            prop_assert_eq!(key.as_bytes(), line.trim_matches([' ', '\t']).as_bytes());
        }
    }

    #[test]
    fn spelling_does_not_matter_to_canonical_json(value in json(), spelling in any::<u64>()) {
        let (mut plain, mut other) = (String::new(), String::new());
        value.write(&mut plain, &mut 0);
        value.write(&mut other, &mut (spelling | 1));
        let canonical = canonical_json(plain.as_bytes(), NOTHING).expect("valid");
        let again = canonical_json(other.as_bytes(), NOTHING).expect("valid");
        prop_assert_eq!(&canonical, &again, "{} and {}", plain, other);
        prop_assert_eq!(&canonical_json(&canonical, NOTHING).expect("valid"), &canonical);
    }

    #[test]
    fn two_values_never_share_their_canonical_bytes(one in json(), two in json()) {
        let bytes = |value: &Json| {
            let mut text = String::new();
            value.write(&mut text, &mut 0);
            canonical_json(text.as_bytes(), NOTHING).expect("valid")
        };
        prop_assert_eq!(bytes(&one) == bytes(&two), one == two);
    }

    #[test]
    fn no_bytes_make_a_fingerprint_panic(
        parts in vec(vec(any::<u8>(), 0..40), 5),
        payload in "[\\[\\]{}:,\"\\\\ue0-9.\\- a\u{e9}\\x00]{0,40}",
        pointers in vec("[/~0-2a]{0,6}", 0..4),
    ) {
        let request = Request {
            method: &parts[0],
            target: &parts[1],
            media_type: Some(&parts[2]),
            content_encoding: Some(&parts[3]),
            payload: &parts[4],
        };
        prop_assert!(Scheme::Raw.fingerprint(&request).is_ok());
        if let Ok(scheme) = Scheme::json(pointers) {
            let _ = scheme.fingerprint(&request);
            let request = Request { payload: payload.as_bytes(), ..request };
            let taken = scheme.fingerprint(&request).is_ok();
            prop_assert!(!taken || serde_json::from_str::<&serde_json::value::RawValue>(&payload).is_ok());
        }
    }
}

/// Made to cost time n squared in a reader that is not careful: minutes. The bound leaves room for a busy machine.
#[test]
fn a_hostile_megabyte_is_read_in_time() {
    let wide = |open: &str, part: &dyn Fn(usize) -> String, close: &str| {
        let parts: Vec<String> = (0..60_000).rev().map(part).collect();
        format!("{open}{}{close}", parts.join(","))
    };
    let members = wide("{", &|index| format!("\"{index:011}\":{index}"), "}");
    let nested = format!("{}{members}{}", "{\"b\":0,\"a\":".repeat(127), "}".repeat(127));
    let prefix = "n".repeat(900);
    let documents = [
        nested,
        wide("[", &|index| format!("{{\"b\":{index},\"a\":[]}}"), "]"),
        format!(
            "{{{}}}",
            (0..1_100).rev().map(|n| format!("\"{prefix}{n:04}\":0")).collect::<Vec<_>>().join(",")
        ),
        format!("[{}1]", "1e-99999999,".repeat(85_000)),
        format!("[1{},1e{}]", "0".repeat(500_000), "0".repeat(500_000)),
        format!("\"{}\"", "\\u0061".repeat(170_000)),
        "[".repeat(1 << 20),
        "\"".to_string() + &"\\\"".repeat(1 << 19),
    ];
    let pointers: Vec<String> = (0..32).map(|index| format!("/a/a/a/{index}")).collect();
    for (index, document) in documents.iter().enumerate() {
        let start = Instant::now();
        let read = canonical_json(document.as_bytes(), &pointers);
        let took = start.elapsed();
        println!("document {index}: {} bytes in {took:?}, taken: {}", document.len(), read.is_ok());
        assert!(took < Duration::from_secs(20), "document {index} took {took:?}");
    }
}

const NOTHING: &[&str] = &[];

fn bytes(len_max: usize) -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 1..=len_max)
}

fn near() -> impl Strategy<Value = Vec<u8>> {
    vec(prop_oneof![Just(1_u8), Just(2), Just(0xff)], 1..4)
}

fn id(scope: &[u8], key: &[u8]) -> Id {
    Id::new(Scope::new(scope).expect("valid"), Key::with_limit(key, 1024).expect("valid"))
}

fn read(mode: HeaderMode, line: &[u8]) -> Option<Key> {
    HeaderRule::new(mode).find(HEADER_NAME, [(b"idempotency_key".as_slice(), line)]).ok()
}

/// A value; equal values are equal here. A number is its digits and a power of ten.
#[derive(Clone, Debug, PartialEq)]
enum Json {
    Word(&'static str),
    Number(i64, i8),
    Text(String),
    List(Vec<Json>),
    Members(std::collections::BTreeMap<String, Json>),
}

fn json() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        prop_oneof![Just("true"), Just("false"), Just("null")].prop_map(Json::Word),
        // Digits that do not end in zero, so that equal numbers are equal pairs.
        (any::<i64>(), -30_i8..30).prop_map(|(digits, power)| match digits {
            0 => Json::Number(0, 0),
            _ if digits % 10 == 0 => Json::Number(1, power),
            _ => Json::Number(digits, power),
        }),
        (0..3_i64, 0..3_i8)
            .prop_map(|(digits, power)| Json::Number(digits, if digits == 0 { 0 } else { power })),
        "[a-c\u{e9}\"\\\\\\n/\u{1f600}]{0,4}".prop_map(Json::Text),
    ];
    leaf.prop_recursive(5, 40, 5, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..5).prop_map(Json::List),
            btree_map("[a-c\"\u{e9}\u{ffff}\u{10000}]{0,2}", inner, 0..5).prop_map(Json::Members),
        ]
    })
}

impl Json {
    /// Writes the value; every `spelling` but zero in a way of its own.
    fn write(&self, out: &mut String, spelling: &mut u64) {
        space(out, spelling);
        match self {
            Self::Word(word) => out.push_str(word),
            Self::Number(0, _) => {
                out.push_str(
                    ["0", "-0", "0.00", "0e9"][usize::try_from(choose(spelling, 4)).expect("small")],
                );
            }
            Self::Number(digits, power) => match choose(spelling, 4) {
                1 => write!(out, "{digits}.000E{power:+}").expect("a String takes all"),
                2 => write!(out, "{digits}0e{}", power - 1).expect("a String takes all"),
                3 => write!(out, "{digits}000e{}", power - 3).expect("a String takes all"),
                _ => write!(out, "{digits}e{power}").expect("a String takes all"),
            },
            Self::Text(text) => write_text(text, out, spelling),
            Self::List(elements) => {
                out.push('[');
                for (index, element) in elements.iter().enumerate() {
                    out.push_str(if index == 0 { "" } else { "," });
                    element.write(out, spelling);
                }
                out.push(']');
            }
            Self::Members(members) => {
                let mut members: Vec<_> = members.iter().collect();
                let turn = usize::try_from(choose(spelling, 5)).expect("small");
                if !members.is_empty() {
                    let count = members.len();
                    members.rotate_left(turn % count);
                }
                if choose(spelling, 2) == 1 {
                    members.reverse();
                }
                out.push('{');
                for (index, (name, member)) in members.into_iter().enumerate() {
                    out.push_str(if index == 0 { "" } else { "," });
                    space(out, spelling);
                    write_text(name, out, spelling);
                    space(out, spelling);
                    out.push(':');
                    member.write(out, spelling);
                }
                out.push('}');
            }
        }
        space(out, spelling);
    }
}

fn write_text(text: &str, out: &mut String, spelling: &mut u64) {
    out.push('"');
    for char in text.chars() {
        if char < ' ' || choose(spelling, 2) == 1 {
            for unit in char.encode_utf16(&mut [0; 2]) {
                write!(out, "\\u{unit:04X}").expect("a String takes all");
            }
        } else {
            out.push_str(if matches!(char, '"' | '\\') { "\\" } else { "" });
            out.push(char);
        }
    }
    out.push('"');
}

fn space(out: &mut String, spelling: &mut u64) {
    out.push_str(["", " ", "\n\t", "", "\r"][usize::try_from(choose(spelling, 5)).expect("small")]);
}

/// Zero for the plain spelling, which stays the plain one.
fn choose(spelling: &mut u64, end: u64) -> u64 {
    *spelling = spelling.wrapping_mul(0xd129_0d3d_5a1b_8e2d);
    (*spelling >> 33) % end
}
