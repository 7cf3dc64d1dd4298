"""Writes tests/vectors: inputs and expected answers stand here by hand, hashes come from the oracle.

    python3 tests/oracle/make_vectors.py            writes the files
    python3 tests/oracle/make_vectors.py --check    fails if a file is not what would be written

A released vector never changes: a new answer for an old input is a new version of what it describes.
"""

import json
import pathlib
import struct
import sys

import blake3
import canonical

FOLDER = pathlib.Path(__file__).parent.parent / "vectors"


def field(name, value):
    """A field of bytes: as text where it is some, else as hex under a name that says so."""
    if value is None:
        return {name: None}
    try:
        return {name: value.decode("utf-8")}
    except UnicodeDecodeError:
        return {name + "_hex": value.hex()}


def ids():
    pairs = [
        ("plain", b"acme", b"order-7"),
        ("the shortest", b"s", b"k"),
        ("the border moved left", b"a", b"bc"),
        ("the border moved right", b"ab", b"c"),
        ("any bytes", bytes(range(256))[1:], bytes(range(256))[:255]),
        ("a NUL alone", b"\0", b"\0"),
        ("UTF-8", "caf\u00e9".encode(), "\U0001f600".encode()),
        ("not normalised: another id", "cafe\u0301".encode(), "\U0001f600".encode()),
        ("the longest scope, all 0xff", b"\xff" * 255, b"\xff"),
        ("the longest key by default", b"acme", b"k" * 255),
        ("the longest key by configuration", b"acme", b"k" * 1024),
        ("case counts", b"ACME", b"order-7"),
    ]
    for name, scope, key in pairs:
        encoded = bytes([len(scope)]) + scope + key
        short = blake3.derived("keyclaim 2026-11-30 id short hash v1", encoded).hex()[:8]
        end = following(bytes([len(scope)]) + scope)
        yield {
            "name": name,
            "scope_hex": scope.hex(),
            "key_hex": key.hex(),
            "encoded_hex": encoded.hex(),
            "range_end_hex": end and end.hex(),
            "short_hash": short,
        }
    for name, encoded in [
        ("nothing", b""),
        ("no scope", b"\0k"),
        ("no key", b"\1s"),
        ("a cut scope", b"\5acme"),
        ("a key beyond every limit", b"\1s" + b"k" * 1025),
    ]:
        yield {"name": name, "encoded_hex": encoded.hex(), "error": "corrupt"}


def following(prefix):
    """The least bytes above all that start with the prefix, by counting up. None if there are none."""
    number = int.from_bytes(prefix, "big") + 1
    if number >> (8 * len(prefix)):
        return None
    return number.to_bytes(len(prefix), "big").rstrip(b"\0")


def headers():
    one = lambda value: [("Idempotency-Key", value)]
    both, lenient, strict = ("lenient", "strict"), ("lenient",), ("strict",)
    cases = [
        # name, modes, headers, longest key, key or fault
        ("no header at all", both, [], 255, "missing"),
        ("other headers only", both, [("X-Idempotency-Key", b"k"), ("Key", b"k")], 255, "missing"),
        ("quoted", both, one(b'"8e03978e"'), 255, b"8e03978e"),
        ("bare", lenient, one(b"8e03978e"), 255, b"8e03978e"),
        ("bare", strict, one(b"k8e03978e"), 255, "malformed"),
        ("a bare number", lenient, one(b"42"), 255, b"42"),
        ("a bare number", strict, one(b"42"), 255, "malformed"),
        ("bare zero is a key", lenient, one(b"0"), 255, b"0"),
        ("bare null is a key like any other text", lenient, one(b"null"), 255, b"null"),
        ("bare with every sign that is allowed", lenient, one(b"!#$%&'()*+-./:<=>?@[\\]^_`{|}~"), 255,
         b"!#$%&'()*+-./:<=>?@[\\]^_`{|}~"),
        ("space around it", both, one(b' \t"k" \t'), 255, b"k"),
        ("space around a bare one", lenient, one(b"\t k "), 255, b"k"),
        ("space inside quotes is part of the key", both, one(b'" a b "'), 255, b" a b "),
        ("escapes", both, one(b'"a\\"b\\\\c"'), 255, b'a"b\\c'),
        ("a comma and a semicolon inside quotes", both, one(b'"a,b;c"'), 255, b"a,b;c"),
        ("parameters are ignored", both, one(b'"k";v=1;a="x";b'), 255, b"k"),
        ("case of the key counts", both, one(b'"ABC"'), 255, b"ABC"),
        ("upper case and underscore in the name", both, [("IDEMPOTENCY_KEY", b'"k"'), ("accept", b"*/*")], 255, b"k"),
        ("empty", both, one(b""), 255, "empty"),
        ("space only", both, one(b"  \t "), 255, "empty"),
        ("empty quotes", both, one(b'""'), 255, "empty"),
        ("quoted space only", both, one(b'"   "'), 255, "empty"),
        ("two lines", both, one(b'"a"') + one(b'"b"'), 255, "repeated"),
        ("two equal lines", both, one(b'"a"') + one(b'"a"'), 255, "repeated"),
        ("an empty second line", both, one(b'"a"') + one(b""), 255, "repeated"),
        ("two spellings of the name", both, [("Idempotency-Key", b'"mine"'), ("idempotency_key", b'"auto"')], 255,
         "repeated"),
        ("a list", both, one(b'"a", "b"'), 255, "list"),
        ("a list of equal members", both, one(b'"a", "a"'), 255, "list"),
        ("a bare list", both, one(b"a, b"), 255, "list"),
        ("a bare list without space", both, one(b"a,b"), 255, "list"),
        ("a bare value with something like a parameter", lenient, one(b"k;v=1"), 255, "malformed"),
        ("a bare value with a space", both, one(b"a b"), 255, "malformed"),
        ("a quote inside a bare value", both, one(b'a"b'), 255, "malformed"),
        ("a quote that does not end", both, one(b'"abc'), 255, "malformed"),
        ("a quote that ends in an escape", both, one(b'"abc\\"'), 255, "malformed"),
        ("an escape that does not exist", both, one(b'"a\\nb"'), 255, "malformed"),
        ("something after the quotes", both, one(b'"a"b'), 255, "malformed"),
        ("a broken parameter", both, one(b'"a";'), 255, "malformed"),
        ("bytes in colons are no string", strict, one(b":YWJj:"), 255, "malformed"),
        ("NUL", both, one(b'"a\0b"'), 255, "characters"),
        ("a control character", both, one(b'"a\x1bb"'), 255, "characters"),
        ("a line break", both, one(b'"a\r\nb"'), 255, "characters"),
        ("a tab inside", both, one(b'"a\tb"'), 255, "characters"),
        ("DEL", both, one(b'"a\x7fb"'), 255, "characters"),
        ("an emoji", both, one('"\U0001f600"'.encode()), 255, "characters"),
        ("a right-to-left mark", both, one("k\u200f".encode()), 255, "characters"),
        ("Latin-1", both, one(b'"caf\xe9"'), 255, "characters"),
        ("a no-break space only", both, one(b"\xc2\xa0"), 255, "characters"),
        ("the shortest", both, one(b'"k"'), 255, b"k"),
        ("the longest", both, one(b'"' + b"k" * 255 + b'"'), 255, b"k" * 255),
        ("the longest of nothing but escapes", both, one(b'"' + b"\\\\" * 255 + b'"'), 255, b"\\" * 255),
        ("one byte too long", both, one(b'"' + b"k" * 256 + b'"'), 255, "too_long"),
        ("one byte too long, bare", lenient, one(b"k" * 256), 255, "too_long"),
        ("a longer limit", both, one(b'"' + b"k" * 1024 + b'"'), 1024, b"k" * 1024),
        ("beyond a longer limit", both, one(b'"' + b"k" * 1025 + b'"'), 1024, "too_long"),
        ("a shorter limit", lenient, one(b"12345"), 4, "too_long"),
    ]
    for name, modes, lines, len_max, answer in cases:
        for mode in modes:
            yield {
                "name": name,
                "mode": mode,
                "key_len_max": len_max,
                "headers": [{"name": header, **field("value", value)} for header, value in lines],
                **({"key": answer.decode()} if isinstance(answer, bytes) else fault(answer)),
            }


def fault(name):
    return {"error": "missing"} if name == "missing" else {"error": "invalid", "fault": name}


REFUSED = None


def canonicals():
    deep = lambda depth: b"[" * depth + b"]" * depth
    cases = [
        # name, pointers left out, JSON, canonical form or REFUSED
        ("members in order", [], b'{"b":1,"a":2}', '{"a":2,"b":1}'),
        ("members in order at depth", [], b'[{"z":{"b":{"d":1,"c":[{"y":1,"x":2}]},"a":0}}]',
         '[{"z":{"a":0,"b":{"c":[{"x":2,"y":1}],"d":1}}}]'),
        ("elements stay where they are", [], b"[2,1,[4,3]]", "[2,1,[4,3]]"),
        ("the order of code points, not of UTF-16", [], b'{"\\ud800\\udc00":1,"\\uffff":2,"\\u00e9":3,"z":4,"":5}',
         '{"":5,"z":4,"\u00e9":3,"\uffff":2,"\U00010000":1}'),
        ("a name that starts like another", [], b'{"ab":1,"a":2,"a\\u0000":3,"A":4}',
         '{"A":4,"a":2,"a\\u0000":3,"ab":1}'),
        ("space of every kind", [], b' \t\r\n{ "a" : [ 1 , true ] , "b" : { } } \n', '{"a":[1,true],"b":{}}'),
        ("empty values", [], b'{"a":{},"b":[],"c":"","d":null,"e":false}', '{"a":{},"b":[],"c":"","d":null,"e":false}'),
        ("a bare string", [], b'"x"', '"x"'),
        ("a bare word", [], b"null", "null"),
        ("one in every spelling", [], b"[1,1.0,1e0,1E+0,0.1e1,10e-1,1.000E-0]", "[1,1,1,1,1,1,1]"),
        ("zero in every spelling", [], b"[0,-0,0.0,-0.00e5,0e-400,0e99999999999999999999999]", "[0,0,0,0,0,0]"),
        ("a hundred", [], b"[100,1E+2,1e2,100.0,0.1e3]", "[1e2,1e2,1e2,1e2,1e2]"),
        ("fractions", [], b"[0.25,-1.50,12.3400,0.001]", "[25e-2,-15e-1,1234e-2,1e-3]"),
        ("two to the 53rd", [], b"9007199254740992", "9007199254740992"),
        ("two to the 53rd and one", [], b"9007199254740993", "9007199254740993"),
        ("more digits than any float", [], b"0.1000000000000000055511151231257827",
         "1000000000000000055511151231257827e-34"),
        ("beyond a double's smallest", [], b"[1e-400,1e400]", "[1e-400,1e400]"),
        ("the largest power of ten", [], b"[1e100000000000000000,10e99999999999999999]",
         "[1e100000000000000000,1e100000000000000000]"),
        ("a larger power of ten", [], b"1e100000000000000001", REFUSED),
        ("a larger power of ten, spelled otherwise", [], b"10e100000000000000000", REFUSED),
        ("a power of ten beyond 64 bits", [], b"1e18446744073709551616", REFUSED),
        ("a power of ten beyond 64 bits, below", [], b"1e-18446744073709551616", REFUSED),
        ("strings by their code points", [], b'["\\u0061\\/","\\u00E9","\\uD83D\\uDE00"]', '["a/","\u00e9","\U0001f600"]'),
        ("no normalisation: composed", [], '"\u00e9"'.encode(), '"\u00e9"'),
        ("no normalisation: decomposed", [], '"e\u0301"'.encode(), '"e\u0301"'),
        ("escapes that stay", [], b'"\\"\\\\\\b\\f\\n\\r\\t\\u0000\\u001F"', '"\\"\\\\\\b\\f\\n\\r\\t\\u0000\\u001f"'),
        ("nothing else is escaped", [], b'"\\u007f\\u2028<&>"', '"\x7f\u2028<&>"'),
        ("JSON inside a string is a string", [], b'{"s":"{\\"b\\":1, \\"a\\":2}"}', '{"s":"{\\"b\\":1, \\"a\\":2}"}'),
        ("two members of one name", [], b'{"a":1,"a":1}', REFUSED),
        ("two members of one name, one escaped", [], b'{"a":1,"b":2,"\\u0061":1}', REFUSED),
        ("two members of one name at depth", [], b'[{"x":{"a":1,"a":2}}]', REFUSED),
        ("names that differ in normalisation only are two", [], '{"e\u0301":1,"\u00e9":2}'.encode(),
         '{"e\u0301":1,"\u00e9":2}'),
        ("half a surrogate pair, high", [], b'"\\ud800"', REFUSED),
        ("half a surrogate pair, low", [], b'"\\udc00x"', REFUSED),
        ("a surrogate pair the wrong way round", [], b'"\\ude00\\ud83d"', REFUSED),
        ("half a pair in a name", [], b'{"\\ud800":1}', REFUSED),
        ("128 levels", [], deep(128), deep(128).decode()),
        ("129 levels", [], deep(129), REFUSED),
        ("nothing", [], b"", REFUSED),
        ("space only", [], b" \n", REFUSED),
        ("a byte order mark", [], b"\xef\xbb\xbf1", REFUSED),
        ("UTF-16", [], '"a"'.encode("utf-16-le"), REFUSED),
        ("a byte that is no UTF-8", [], b'"\xff"', REFUSED),
        ("an overlong form", [], b'"\xc0\x80"', REFUSED),
        ("a surrogate as UTF-8", [], b'"\xed\xa0\x80"', REFUSED),
        ("two values", [], b"1 2", REFUSED),
        ("a NUL at the end", [], b"1\0", REFUSED),
        ("a comma at the end of an array", [], b"[1,]", REFUSED),
        ("a comma at the end of an object", [], b'{"a":1,}', REFUSED),
        ("no comma", [], b"[1 2]", REFUSED),
        ("no colon", [], b'{"a" 1}', REFUSED),
        ("a name without quotes", [], b"{a:1}", REFUSED),
        ("single quotes", [], b"'a'", REFUSED),
        ("a comment", [], b"[1/*x*/]", REFUSED),
        ("a bracket too few", [], b"[[1]", REFUSED),
        ("a wrong bracket", [], b"[1}", REFUSED),
        ("a leading zero", [], b"01", REFUSED),
        ("a leading plus", [], b"+1", REFUSED),
        ("no digit before the point", [], b".5", REFUSED),
        ("no digit after the point", [], b"5.", REFUSED),
        ("no digit in the power", [], b"1e", REFUSED),
        ("a minus alone", [], b"-", REFUSED),
        ("hexadecimal", [], b"0x10", REFUSED),
        ("NaN", [], b"NaN", REFUSED),
        ("infinity", [], b"-Infinity", REFUSED),
        ("a word in capitals", [], b"True", REFUSED),
        ("a word cut short", [], b"nul", REFUSED),
        ("a line break in a string", [], b'"a\nb"', REFUSED),
        ("an escape that does not exist", [], b'"\\x41"', REFUSED),
        ("an escape cut short", [], b'"\\u004"', REFUSED),
        ("a string that does not end", [], b'"a', REFUSED),
        ("left out: a member", ["/sent_at"], b'{"sent_at":17,"amount":5}', '{"amount":5}'),
        ("left out: at depth", ["/a/b/c"], b'{"a":{"b":{"c":1,"d":2}}}', '{"a":{"b":{"d":2}}}'),
        ("left out: a whole object", ["/a"], b'{"a":{"b":{"c":1}},"z":0}', '{"z":0}'),
        ("left out: through an array", ["/list/1/t"], b'{"list":[{"t":1},{"t":2},{"t":3}]}', '{"list":[{"t":1},{},{"t":3}]}'),
        ("left out: elements", ["/0", "/2"], b"[1,2,3,4]", "[2,4]"),
        ("left out: everything in it", ["/a"], b'{"a":1}', "{}"),
        ("left out: out of order", ["/c/x"], b'{"d":1,"c":{"z":[{"q":1,"p":2}],"x":{"n":1,"m":2},"a":3},"b":4}',
         '{"b":4,"c":{"a":3,"z":[{"p":2,"q":1}]},"d":1}'),
        ("left out: one pointer inside another", ["/a", "/a/b"], b'{"a":{"b":1,"c":2},"d":3}', '{"d":3}'),
        ("left out: escapes in pointers", ["/a~1b", "/m~0n", "/~01"], b'{"a/b":1,"m~n":2,"~1":3,"/":4}', '{"/":4}'),
        ("left out: the empty name", ["/"], b'{"":1,"a":2}', '{"a":2}'),
        ("left out: a name of digits", ["/0"], b'{"0":1,"1":2}', '{"1":2}'),
        ("left out: spelled with an escape in the text", ["/a"], b'{"\\u0061":1,"b":2}', '{"b":2}'),
        ("left out: nothing found", ["/x", "/a/b", "/list/9", "/list/-", "/list/00", "/list/+0"],
         b'{"a":1,"list":[1]}', '{"a":1,"list":[1]}'),
        ("left out: of a value that has no members", ["/a"], b"3", "3"),
        ("left out, but two of one name", ["/a"], b'{"a":1,"a":2}', REFUSED),
        ("left out, but not valid", ["/a"], b'{"a":1e999999999999999999}', REFUSED),
        ("a pointer without a slash", ["a"], b"{}", REFUSED),
        ("the pointer of the whole document", [""], b"{}", REFUSED),
        ("a tilde that is no escape", ["/a~2"], b"{}", REFUSED),
        ("a tilde at the end", ["/a~"], b"{}", REFUSED),
        ("the longest pointer", ["/" + "a" * 254], b"{}", "{}"),
        ("a pointer too long", ["/" + "a" * 255], b"{}", REFUSED),
        ("the most pointers", [f"/{n}" for n in range(32)], b"{}", "{}"),
        ("too many pointers", [f"/{n}" for n in range(33)], b"{}", REFUSED),
    ]
    for name, without, data, expected in cases:
        try:
            answer = canonical.canonical(data, without).decode()
        except canonical.Refused:
            answer = REFUSED
        assert answer == expected, f"{name}: the oracle says {answer!r}, by hand it is {expected!r}"
        result = {"error": "invalid"} if expected is REFUSED else {"canonical": expected}
        yield {"name": name, "without": without, **field("json", data), **result}


def fingerprints():
    base = {
        "scheme": "raw",
        "without": [],
        "method": b"POST",
        "target": b"/v1/payments?dry=0",
        "media_type": b"application/json",
        "content_encoding": None,
        "payload": b'{"amount":100,"to":"x"}',
    }
    as_json = {"scheme": "json"}
    # Cases of one group have one hash, cases of different groups have different ones.
    groups = {
        "raw": [
            ("plain", {}),
            ("media type in capitals", {"media_type": b"Application/JSON"}),
            ("space around the media type", {"media_type": b" application/json ;"}),
            ("identity is no encoding", {"content_encoding": b"Identity"}),
            ("an empty encoding is none", {"content_encoding": b""}),
        ],
        "raw spaced": [("a space more in the payload", {"payload": b'{"amount":100, "to":"x"}'})],
        "raw reordered": [("members in another order", {"payload": b'{"to":"x","amount":100}'})],
        "raw method": [("another method", {"method": b"PUT"})],
        "raw method case": [("a method in small letters", {"method": b"post"})],
        "raw target": [("another target", {"target": b"/v1/refunds?dry=0"})],
        "raw query": [("another query", {"target": b"/v1/payments?dry=1"})],
        "raw no query": [("no query", {"target": b"/v1/payments"})],
        "raw border": [("the border between method and target moved", {"method": b"POST/", "target": b"v1/payments?dry=0"})],
        "raw no type": [("no media type", {"media_type": None}), ("an empty media type", {"media_type": b" "})],
        "raw swapped": [("the media type as encoding", {"media_type": None, "content_encoding": b"application/json"})],
        "raw charset": [
            ("a charset", {"media_type": b"application/json; charset=utf-8"}),
            ("a charset in capitals", {"media_type": b"application/json;CHARSET=UTF-8"}),
            ("a charset in quotes", {"media_type": b'application/json; charset="Utf-8"'}),
        ],
        "raw parameters": [
            ("parameters", {"media_type": b'text/x;a="x y";b=B'}),
            ("parameters in another order", {"media_type": b'text/x ; b="B" ;; A="x\\ y"'}),
        ],
        "raw parameter case": [("the value of a parameter in small letters", {"media_type": b'text/x;a="x y";b=b'})],
        "raw malformed": [("a malformed media type", {"media_type": b"JSON"})],
        "raw malformed case": [("a malformed media type in small letters", {"media_type": b"json"})],
        "raw gzip": [
            ("an encoding", {"content_encoding": b"gzip"}),
            ("an encoding in capitals", {"content_encoding": b" GZIP, identity"}),
        ],
        "raw encodings": [("two encodings", {"content_encoding": b"gzip, br"})],
        "raw encodings reversed": [("two encodings the other way round", {"content_encoding": b"br,gzip"})],
        "raw empty": [("an empty payload", {"payload": b""})],
        "raw bytes": [("a payload of all bytes", {"payload": bytes(range(256))})],
        "raw long": [("a payload of more than one chunk", {"payload": b"0123456789abcdef" * 200})],
        "raw nothing": [
            ("nothing at all", {"method": b"", "target": b"", "media_type": None, "payload": b""}),
        ],
        "json": [
            ("canonical JSON", as_json),
            ("members in another order", {**as_json, "payload": b'{"to":"x","amount":100}'}),
            ("another spelling of everything", {**as_json, "payload": b' { "t\\u006f" : "\\u0078", "amount" : 1.00E+2 } '}),
        ],
        "json amount": [("another amount", {**as_json, "payload": b'{"amount":101,"to":"x"}'})],
        "json large": [("a large amount", {**as_json, "payload": b'{"amount":9007199254740992}'})],
        "json larger": [("a large amount and one", {**as_json, "payload": b'{"amount":9007199254740993}'})],
        "json left out": [
            ("a member left out", {**as_json, "without": ["/sent_at", "/meta/id"],
                                   "payload": b'{"amount":1,"sent_at":17,"meta":{"id":"a"}}'}),
            ("the same, sent later", {**as_json, "without": ["/sent_at", "/meta/id"],
                                      "payload": b'{"meta":{"id":"b"},"amount":1.0}'}),
            ("pointers in another order and twice", {**as_json, "without": ["/meta/id", "/sent_at", "/meta/id"],
                                                     "payload": b'{"amount":1,"meta":{}}'}),
        ],
        "json not left out": [("the same payload, nothing left out", {**as_json, "payload": b'{"amount":1,"meta":{}}'})],
        "json pointer": [("a pointer that finds nothing is part of the scheme", {**as_json, "without": ["/x"]})],
    }
    seen = {}
    for group, cases in groups.items():
        for name, changes in cases:
            case = {**base, **changes}
            digest = canonical.fingerprint(case)
            assert seen.setdefault(digest, group) == group, f"{name}: in {group} and in {seen[digest]}"
            assert list(seen.values()).count(group) == 1, f"{name}: not the hash of its group {group}"
            yield {"name": name, **request(case), "hash": digest.hex()}
    for name, changes in [
        ("canonical JSON of something else", {"payload": b"amount=100"}),
        ("canonical JSON of nothing", {"payload": b""}),
        ("canonical JSON of compressed bytes", {"payload": bytes.fromhex("1f8b0800"), "content_encoding": b"gzip"}),
        ("a pointer of the whole document", {"without": [""]}),
    ]:
        yield {"name": name, **request({**base, **as_json, **changes}), "error": "invalid"}


def request(case):
    fields = {"scheme": case["scheme"], "without": case["without"]}
    for name in ("method", "target", "media_type", "content_encoding", "payload"):
        fields |= field(name, case[name])
    return fields


def mints():
    joined = lambda parts: b"".join(struct.pack("<Q", len(part)) + part for part in parts)
    for name, kind, parts in [
        ("one part", "event", [b"invoice-paid"]),
        ("three parts", "event", [b"invoice-paid", b"in_77", b"3"]),
        ("the border moved left", "event", [b"a", b"bc"]),
        ("the border moved right", "event", [b"ab", b"c"]),
        ("any bytes", "event", [bytes(range(256))]),
        ("zero is a value", "event", [b"0"]),
        ("an intent and an operation", "request", [b"ab", b"c"]),
    ]:
        key = blake3.derived(f"keyclaim 2026-11-30 {kind} key v1", joined(parts)).hex()
        yield {"name": name, "kind": kind, "parts_hex": [part.hex() for part in parts], "key": key}
    for name, kind, parts in [
        ("no part", "event", []),
        ("an empty part", "event", [b"invoice-paid", b""]),
        ("no intent", "request", [b"", b"pay"]),
        ("no operation", "request", [b"i", b""]),
    ]:
        yield {"name": name, "kind": kind, "parts_hex": [part.hex() for part in parts], "error": "invalid"}


def main():
    files = {
        "id": ids, "key_header": headers, "canonical_json": canonicals, "fingerprint": fingerprints, "mint": mints,
    }
    for name, cases in files.items():
        text = "".join(json.dumps(case) + "\n" for case in cases())
        file = FOLDER / f"{name}.jsonl"
        if "--check" not in sys.argv:
            file.write_text(text, encoding="ascii")
        elif file.read_text(encoding="ascii") != text:
            sys.exit(f"{file} is not what this program writes: run it without --check and look at the difference")


if __name__ == "__main__":
    main()
