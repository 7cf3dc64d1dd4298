//! Canonical JSON agrees with the oracle in Python, over documents nobody thought of.
//!
//! `KEYCLAIM_SEED` and `KEYCLAIM_COUNT` choose other and more documents; a failure prints how to run it again.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use keyclaim::fingerprint::canonical_json;
use serde_json::{Value, json};

struct Case {
    json: Vec<u8>,
    without: Vec<String>,
}

#[test]
fn the_library_and_the_oracle_agree_on_every_document() {
    let seed = setting("KEYCLAIM_SEED", 20_261_130);
    let count = setting("KEYCLAIM_COUNT", 3_000);
    let cases: Vec<Case> = (0..count).map(|index| Random(seed ^ (index << 32)).case()).collect();
    let answers = oracle(&cases);
    let mut taken = 0_u64;
    for (index, (case, answer)) in cases.iter().zip(&answers).enumerate() {
        let ours = canonical_json(&case.json, &case.without).ok().map(|canonical| hex(&canonical));
        taken += u64::from(ours.is_some());
        assert_eq!(
            ours.as_deref(),
            answer["canonical_hex"].as_str(),
            "document {index}: {:?} without {:?}; the oracle (right) says {answer}\n\
             again: KEYCLAIM_SEED={seed} KEYCLAIM_COUNT={count} cargo test -p keyclaim-tests --test identity_oracle",
            String::from_utf8_lossy(&case.json),
            case.without,
        );
    }
    // Both kinds have to occur often, or this compares nothing.
    assert!(taken > count / 4 && count - taken > count / 10, "{taken} of {count} documents were taken");
}

/// Someone who edits a line of the vectors by hand would else bend them to the code.
#[test]
fn the_vectors_are_what_the_oracle_writes() {
    let status = python("make_vectors.py").arg("--check").status().expect(NO_PYTHON);
    assert!(status.success(), "a file in tests/vectors differs; the message is above");
}

fn oracle(cases: &[Case]) -> Vec<Value> {
    let mut python =
        python("canonical.py").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect(NO_PYTHON);
    let mut input = python.stdin.take().expect("it is piped");
    let line = |case: &Case| json!({"json_hex": hex(&case.json), "without": case.without}).to_string();
    let lines = cases.iter().map(line).collect::<Vec<_>>().join("\n");
    // From a thread of its own: the oracle answers before it has read everything.
    let writer = std::thread::spawn(move || input.write_all(lines.as_bytes()));
    let output = python.wait_with_output().expect("the oracle runs");
    assert!(output.status.success(), "the oracle failed; its message is above");
    writer.join().expect("no panic").expect("the oracle reads all lines");
    let answers: Vec<Value> = String::from_utf8(output.stdout)
        .expect("the oracle writes UTF-8")
        .lines()
        .map(|line| serde_json::from_str(line).expect("the oracle writes JSON"))
        .collect();
    assert_eq!(answers.len(), cases.len(), "the oracle answered another number of lines");
    answers
}

const NO_PYTHON: &str = "python3 is needed for this test; install it and have it in the PATH";

fn python(script: &str) -> Command {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("oracle").join(script);
    let mut command = Command::new("python3");
    command.arg("-B").arg(script);
    command
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().expect("a setting is a whole number"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |digits, byte| digits + &format!("{byte:02x}"))
}

/// Splitmix64: every seed gives its own documents, on every machine the same.
struct Random(u64);

impl Random {
    fn case(&mut self) -> Case {
        let mut json = String::new();
        if self.one_in(20) {
            let depth = 120 + self.below(16);
            let (open, close) = if self.one_in(2) { ("[", "]") } else { ("{\"a\":", "}") };
            let whole = format!("{}{}{}", open.repeat(depth), "0", close.repeat(depth));
            json.push_str(&whole);
        } else {
            self.value(&mut json, 5);
        }
        let mut json = json.into_bytes();
        if self.one_in(3) {
            self.damage(&mut json);
        }
        let pointers = self.below(3);
        let without = (0..pointers).map(|_| self.pointer()).collect();
        Case { json, without }
    }

    fn value(&mut self, out: &mut String, depth: usize) {
        self.space(out);
        match self.below(if depth == 0 { 5 } else { 10 }) {
            0 => out.push_str(self.pick(&["true", "false", "null"])),
            1 | 2 => self.number(out),
            3 | 4 => self.string(out),
            5 | 6 => self.list(out, depth, ['[', ']'], Self::value),
            _ => self.list(out, depth, ['{', '}'], |random, out, depth| {
                random.space(out);
                random.name(out);
                random.space(out);
                out.push(':');
                random.value(out, depth);
            }),
        }
        self.space(out);
    }

    fn list(
        &mut self,
        out: &mut String,
        depth: usize,
        [open, close]: [char; 2],
        part: impl Fn(&mut Self, &mut String, usize),
    ) {
        out.push(open);
        for index in 0..self.below(5) {
            if index > 0 {
                out.push(',');
            }
            part(self, out, depth - 1);
        }
        out.push(close);
    }

    /// Few names, so that pointers find something and some objects have two of one name.
    fn name(&mut self, out: &mut String) {
        if self.one_in(6) {
            return self.string(out);
        }
        out.push_str(self.pick(&[
            "\"a\"",
            "\"b\"",
            "\"c\"",
            "\"d\"",
            "\"e\"",
            "\"f\"",
            "\"g\"",
            "\"\"",
            "\"0\"",
            "\"a/b\"",
            "\"m~n\"",
            "\"\\u0061\"",
            "\"aa\"",
            "\"A\"",
            "\"\u{ffff}\"",
            "\"\u{10000}\"",
            "\"\\ud800\\udc00\"",
            "\"z\\n\"",
            "\"z\"",
        ]));
    }

    fn string(&mut self, out: &mut String) {
        out.push('"');
        for _ in 0..self.below(6) {
            out.push_str(self.pick(&[
                "a",
                "b",
                "\u{e9}",
                "e\u{301}",
                "\u{1f600}",
                "\\n",
                "\\\"",
                "\\\\",
                "\\/",
                "\\b\\f\\r\\t",
                "\\u0000",
                "\\u001f",
                "\\u00e9",
                "\\u2028",
                "\u{2029}",
                "\u{7f}",
                "\\uFFFF",
                "\\ud83d\\ude00",
                "\\uD83D\\uDE00",
                "'",
            ]));
            if self.one_in(60) {
                out.push_str(self.pick(&[
                    "\\ud800",
                    "\\udfff",
                    "\\udc00\\ud800",
                    "\\x",
                    "\\u12",
                    "\t",
                    "\\u+041",
                    "\\",
                ]));
            }
        }
        out.push('"');
    }

    fn number(&mut self, out: &mut String) {
        out.push_str(self.pick(&["", "", "-"]));
        out.push_str(self.pick(&["0", "1", "7", "10", "100", "120", "9007199254740992", "9007199254740993"]));
        if self.one_in(2) {
            out.push_str(self.pick(&[
                ".0",
                ".5",
                ".50",
                ".05",
                ".000",
                ".1000000000000000055511151231257827",
            ]));
        }
        if self.one_in(2) {
            out.push_str(self.pick(&["e", "E"]));
            out.push_str(self.pick(&["", "+", "-"]));
            out.push_str(self.pick(&[
                "0",
                "1",
                "2",
                "02",
                "15",
                "400",
                "99999999999999998",
                "100000000000000000",
            ]));
        }
        if self.one_in(60) {
            out.push_str(self.pick(&[
                "e100000000000000001",
                "00e9223372036854775807",
                "e99999999999999999999",
                ".",
                "e",
                "0_",
            ]));
        }
    }

    fn space(&mut self, out: &mut String) {
        if self.one_in(8) {
            out.push_str(self.pick(&[" ", "\n", "\t", "\r\n", "  "]));
        }
    }

    fn pointer(&mut self) -> String {
        if self.one_in(25) {
            return self.pick(&["", "a", "/~", "/~2", "/a~"]).to_string();
        }
        let names =
            ["a", "b", "c", "d", "", "0", "1", "2", "00", "-", "a~1b", "m~0n", "\u{10000}", "z\n", "aa"];
        (0..=self.below(3)).fold(String::new(), |pointer, _| pointer + "/" + self.pick(&names))
    }

    /// Changes a few bytes, at any place, to what often breaks a reader.
    fn damage(&mut self, json: &mut Vec<u8>) {
        for _ in 0..=self.below(2) {
            let at = self.below(json.len() + 1);
            let byte =
                *b"{}[]:,\"\\0-.eEu+ntf \n\x00\x1f\x7f\xc3\xa9\xff\xf0".get(self.below(31)).unwrap_or(&b'1');
            match self.below(3) {
                0 => json.insert(at, byte),
                1 if at < json.len() => json[at] = byte,
                _ if at < json.len() => drop(json.remove(at)),
                _ => json.truncate(at / 2),
            }
        }
    }

    fn pick<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.below(choices.len())]
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let end = u64::try_from(end).expect("a length fits");
        usize::try_from((mixed ^ (mixed >> 31)) % end).expect("below a length")
    }
}
