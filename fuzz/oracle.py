"""Fingerprints by the oracle of tests/oracle, a line for a line, for as long as there are lines.

    {"scheme": "json", "without": [...], "method": hex, "target": hex, "media_type": hex or null,
     "content_encoding": hex or null, "payload": hex}  ->  {"hash": hex, "canonical": hex or null} or {"refused": "why"}
"""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "oracle"))

import canonical


def answer(line):
    case = json.loads(line)
    for part in ("method", "target", "media_type", "content_encoding", "payload"):
        case[part] = None if case[part] is None else bytes.fromhex(case[part])
    try:
        text = None
        if case["scheme"] == "json":
            text = canonical.canonical(case["payload"], case["without"]).hex()
        return {"hash": canonical.fingerprint(case).hex(), "canonical": text}
    except canonical.Refused as error:
        return {"refused": str(error)}


def main():
    for line in sys.stdin:
        print(json.dumps(answer(line)), flush=True)


if __name__ == "__main__":
    main()
