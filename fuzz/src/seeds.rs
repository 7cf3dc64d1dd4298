//! What a fuzzer begins with: the rows of the golden file, the vectors, and shapes of each input.

use std::path::Path;
use std::{fs, io};

use keyclaim::store::redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use serde_json::Value;

use crate::{ALL, top};

/// Version, flags and checksum: what a target puts before a row itself.
const HEADER_LEN: usize = 18;

/// Writes the seeds of every target into its corpus; the same ones each time.
///
/// # Panics
/// If the repository is not whole.
pub fn write() -> io::Result<usize> {
    let mut count = 0;
    for target in ALL {
        let seeds = match target.name {
            "decode_record" => rows("records", &[1]).into_iter().chain(rows("archive", &[1])).collect(),
            "decode_event" => rows("outbox", &[1, 0]),
            "headers" => headers(),
            "fingerprints" => fingerprints(),
            "open_bytes" => files(),
            // Their inputs are choices, and any bytes are some.
            _ => choices(target.len_max),
        };
        fs::create_dir_all(target.corpus())?;
        for (number, seed) in seeds.iter().filter(|seed| seed.len() <= target.len_max).enumerate() {
            fs::write(target.corpus().join(format!("seed-{number:03}")), seed)?;
            count += 1;
        }
    }
    Ok(count)
}

/// The payloads of a table of the golden file, each behind these bytes.
fn rows(table: &str, before: &[u8]) -> Vec<Vec<u8>> {
    let copy = top().join("target/golden-copy");
    fs::create_dir_all(copy.parent().expect("it has one")).expect("a folder");
    fs::copy(top().join("tests/golden/format-1.keyclaim"), &copy).expect("the golden file");
    let found = rows_of(&copy, table, before);
    fs::remove_file(copy).expect("it was made above");
    found.expect("the golden file is whole")
}

fn rows_of(file: &Path, table: &str, before: &[u8]) -> Result<Vec<Vec<u8>>, keyclaim::store::redb::Error> {
    let database = Database::open(file)?;
    let table = database.begin_read()?.open_table(TableDefinition::<&[u8], &[u8]>::new(table))?;
    let rows = table.iter()?.map(|row| {
        let stored = row?.1.value().to_vec();
        Ok([before, stored.get(HEADER_LEN..).unwrap_or_default()].concat())
    });
    rows.collect()
}

fn vectors(file: &str) -> Vec<Value> {
    let text = fs::read_to_string(top().join("tests/vectors").join(file)).expect("a vector file");
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

/// Bytes of a vector, which are text or hex.
fn bytes(vector: &Value, name: &str) -> Option<Vec<u8>> {
    let hex = |digits: &str| {
        let pairs = (0..digits.len() / 2).map(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16));
        pairs.collect::<Result<Vec<u8>, _>>().expect("hex")
    };
    let text = vector[name].as_str().map(|text| text.as_bytes().to_vec());
    text.or_else(|| vector[format!("{name}_hex")].as_str().map(hex))
}

fn headers() -> Vec<Vec<u8>> {
    let lines = vectors("key_header.jsonl").into_iter().map(|vector| {
        let lines = vector["headers"].as_array().into_iter().flatten().map(|line| {
            [bytes(line, "name").unwrap_or_default(), bytes(line, "value").unwrap_or_default()].join(&b':')
        });
        [b"\0\xff\0".to_vec(), lines.collect::<Vec<_>>().join(&b'\n')].concat()
    });
    let answer = b"\x01\xc8\0\x01Location: /p/1\nContent-Type: text/plain\nConnection: close, etag\nETag: \"1\"\nLink: <a>";
    let many = [b"\x01\xc8\0\0".to_vec(), b"ETag:\n".repeat(101)].concat();
    let id = b"\x02\x06acct_1order-7";
    let bare = [&b"order,7"[..], b"order 7", b"a;b=c", b"a\"b"];
    let bare = bare.map(|value| [b"\0\xff\0Idempotency-Key: ", value].concat());
    lines.chain(bare).chain([answer.to_vec(), many, id.to_vec()]).collect()
}

fn fingerprints() -> Vec<Vec<u8>> {
    let whole = vectors("fingerprint.jsonl").into_iter().chain(vectors("canonical_json.jsonl"));
    let seeds = whole.map(|vector| {
        let without = vector["without"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let pointers =
            if vector["scheme"] == "raw" { "raw".to_owned() } else { without.collect::<Vec<_>>().join("\t") };
        let part = |name, default: &str| bytes(&vector, name).unwrap_or_else(|| default.as_bytes().to_vec());
        let target = [part("method", "POST"), part("target", "/v1")].join(&b' ');
        let payload = bytes(&vector, "payload").or_else(|| bytes(&vector, "json"));
        let lines = [
            pointers.into_bytes(),
            target,
            part("media_type", "-"),
            part("content_encoding", "-"),
            payload.unwrap_or_default(),
        ];
        lines.join(&b'\n')
    });
    seeds.collect()
}

/// Whole files that are none, and patches of the golden file over all of its length.
fn files() -> Vec<Vec<u8>> {
    let golden = fs::read(top().join("tests/golden/format-1.keyclaim")).expect("the golden file");
    let whole = [0, 9, 64, 320, 4_000].map(|len| [&[0], &golden[..len]].concat());
    let patch = |how: u8, at: usize, len: u8, new: &[u8]| {
        let at = u32::try_from(at).expect("small").to_le_bytes();
        [&[how], &at[..3], &[len], new].concat()
    };
    // The header, then pages here and there.
    let header = (0..320).step_by(16).map(|at| patch(1, at, 1, &[0xff]));
    let pages = (4_096..golden.len()).step_by(4_096 * 3).flat_map(|at| {
        [patch(1, at, 4, &[2, 0, 0xff, 0xff]), patch(5, at, 4, &[1, 0, 9, 0]), patch(1, at, 0, &[])]
    });
    // What was answered, wherever a page has it.
    let answers = golden.windows(4).enumerate().filter(|(_, four)| four == b"paid");
    let answers = answers.map(|(at, _)| patch(1, at, 1, b"s"));
    whole.into_iter().chain(header).chain(pages).chain(answers).collect()
}

/// Rows of bytes that look random.
fn choices(len_max: usize) -> Vec<Vec<u8>> {
    let row = |number: usize| {
        let mut draws = keyclaim_tests::seeded::Draws::new(number as u64);
        let len = len_max * (number + 1) / 24;
        (0..len).map(|_| u8::try_from(draws.below(256)).unwrap_or_default()).collect()
    };
    (0..24).map(row).collect()
}
