"""Canonical JSON and fingerprints a second time, written from their description and not from the code.

Standard library only. It reads with Python's own JSON parser and counts numbers with Python's own
decimals, so that a mistake in our reader cannot be made here too. Run as a program it answers one line of
JSON for each line it is given:

    {"json_hex": "...", "without": ["/a"]}  ->  {"canonical_hex": "..."} or {"refused": "why"}
"""

import decimal
import json
import re
import struct
import sys

import blake3

DEPTH_MAX = 128
EXPONENT_MAX = 10**17
POINTERS_MAX = 32
POINTER_LEN_MAX = 255
FINGERPRINT_CONTEXT = "keyclaim 2026-11-30 fingerprint v1"


class Refused(Exception):
    """The input has no canonical form."""


class Number(str):
    """The text of a number."""


class Members(list):
    """The members of an object, as pairs in the order they came."""


def canonical(data, without=()):
    """The canonical bytes of a JSON text without what the pointers name; Refused if there are none."""
    paths = [path(pointer) for pointer in without]
    if len(paths) > POINTERS_MAX:
        raise Refused("too many pointers")
    try:
        value = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=Members,
            parse_int=Number,
            parse_float=Number,
            parse_constant=refuse_constant,
        )
    except (ValueError, RecursionError) as error:
        raise Refused(type(error).__name__) from error
    check(value, 0)
    return text(value, paths).encode("utf-8")


def refuse_constant(name):
    raise Refused(name)


def path(pointer):
    if len(pointer.encode("utf-8")) > POINTER_LEN_MAX or not re.fullmatch(r"(/([^/~]|~[01])*)+", pointer, re.DOTALL):
        raise Refused("pointer")
    return [name.replace("~1", "/").replace("~0", "~") for name in pointer.split("/")[1:]]


def check(value, depth):
    """Refuses what Python's parser lets pass, left out or not."""
    if isinstance(value, (list, Members)) and depth >= DEPTH_MAX:
        raise Refused("depth")
    if isinstance(value, Members):
        names = [name for name, _ in value]
        if len(set(names)) != len(names):
            raise Refused("two members of one name")
        for name, member in value:
            check(name, depth + 1)
            check(member, depth + 1)
    elif isinstance(value, list):
        for element in value:
            check(element, depth + 1)
    elif isinstance(value, Number):
        number(value)
    elif isinstance(value, str) and any(0xD800 <= ord(char) <= 0xDFFF for char in value):
        raise Refused("half a surrogate pair")


def text(value, paths):
    if isinstance(value, Members):
        members = []
        for name, member in sorted(value):
            here = [rest[1:] for rest in paths if rest[:1] == [name]]
            if [] not in here:
                members.append(string(name) + ":" + text(member, here))
        return "{" + ",".join(members) + "}"
    if isinstance(value, list):
        elements = []
        for index, element in enumerate(value):
            here = [rest[1:] for rest in paths if rest[:1] == [str(index)]]
            if [] not in here:
                elements.append(text(element, here))
        return "[" + ",".join(elements) + "]"
    if isinstance(value, Number):
        return number(value)
    if isinstance(value, str):
        return string(value)
    return {True: "true", False: "false", None: "null"}[value]


def string(value):
    return json.dumps(str(value), ensure_ascii=False)


def number(value):
    mantissa, _, exponent = value.lower().partition("e")
    if not mantissa.strip("-0."):
        return "0"
    if len(exponent.lstrip("+-").lstrip("0")) > 18:
        raise Refused("power of ten")
    try:
        sign, digits, power = decimal.Decimal(value).as_tuple()
    except decimal.InvalidOperation as error:
        raise Refused("power of ten") from error
    significant = "".join(map(str, digits)).rstrip("0")
    power += len(digits) - len(significant)
    if abs(power) > EXPONENT_MAX:
        raise Refused("power of ten")
    return "-" * sign + significant.lstrip("0") + (f"e{power}" if power else "")


def fingerprint(case):
    """The 32 bytes for a request: method, target and payload as bytes, the two headers as bytes or None."""
    parts = b"\0"
    payload = case["payload"]
    if case["scheme"] == "json":
        without = sorted(set(case["without"]))
        parts = b"\1" + struct.pack("<Q", len(without)) + b"".join(part(p.encode()) for p in without)
        payload = canonical(payload, without)
    parts += part(case["method"]) + part(case["target"])
    parts += optional(media_type(case["media_type"])) + optional(content_encoding(case["content_encoding"]))
    return blake3.derived(FINGERPRINT_CONTEXT, parts + part(payload))


def part(data):
    return struct.pack("<Q", len(data)) + data


def optional(data):
    return b"\1" + part(data) if data else b"\0"


TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
QUOTED = rb'"(?:[^"\\]|\\.)*"'
PARAMETER = rb"[ \t]*;[ \t]*(?:(%s)=(%s|%s))?" % (TOKEN, TOKEN, QUOTED)


def media_type(value):
    value = (value or b"").strip(b" \t")
    if not re.fullmatch(rb"%s/%s(?:%s)*[ \t]*" % (TOKEN, TOKEN, PARAMETER), value, re.DOTALL):
        return value
    kind = re.match(rb"%s/%s" % (TOKEN, TOKEN), value)
    parameters = []
    for name, given in re.findall(PARAMETER, value[kind.end() :], re.DOTALL):
        if given.startswith(b'"'):
            given = re.sub(rb"\\(.)", rb"\1", given[1:-1], flags=re.DOTALL)
        if name.lower() == b"charset":
            given = given.lower()
        if not re.fullmatch(TOKEN, given):
            given = b'"' + re.sub(rb'(["\\])', rb"\\\1", given) + b'"'
        if name:
            parameters.append((name.lower(), given))
    parameters.sort(key=lambda pair: pair[0])
    return kind.group().lower() + b"".join(b";" + name + b"=" + given for name, given in parameters)


def content_encoding(value):
    codings = [coding.strip(b" \t").lower() for coding in (value or b"").split(b",")]
    return b",".join(coding for coding in codings if coding not in (b"", b"identity"))


def main():
    for line in sys.stdin:
        case = json.loads(line)
        try:
            answer = {"canonical_hex": canonical(bytes.fromhex(case["json_hex"]), case["without"]).hex()}
        except Refused as error:
            answer = {"refused": str(error)}
        print(json.dumps(answer))


if __name__ == "__main__":
    main()
