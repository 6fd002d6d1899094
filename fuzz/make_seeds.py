#!/usr/bin/env python3
"""Makes the seed corpora of the fuzz targets from the golden vectors, from fuzz/seeds/TARGET/ and
from other files of this source tree.

  make_seeds.py GOLDEN OUT      reads GOLDEN/*/*.json, writes OUT/TARGET/NAME

What was in OUT/TARGET is removed. Exit codes: 0, 2 for a vector that is malformed or a kind
without vectors; then nothing is written.
"""
import json
import pathlib
import re
import shutil
import struct
import sys

import mistakes
from elf_seeds import callers_seeds, elf_seeds, loaded_at_seeds, loaded_file_seeds, modules_seeds

WALL_CLOCK = 1_780_000_000_000_000_000
ENCODER, READER, LAYOUTS = 0, 1, 2  # ContextMode; the place counts by threes
PLACES = 6
ROOT = pathlib.Path(__file__).resolve().parent.parent


def fail(message):
    print(f"make_seeds.py: {message}", file=sys.stderr)
    sys.exit(2)


def number(value):
    return int(value, 16) if isinstance(value, str) else int(value)


def record_seeds(vector):
    record = bytes.fromhex(vector["record"])
    for mode, name in enumerate(("exact", "last", "behind")):
        yield f"-{name}", bytes([mode]) + record


def context_seeds(vector):
    record = bytes.fromhex(vector["record"])
    keys = min(len(vector.get("key_map", [])), 255)
    for mode in (ENCODER, READER, LAYOUTS):
        yield f"-{mode}", bytes([keys, mode]) + record
    if vector["id"] in ("rec/one-attribute", "rec/draft-t0"):
        for place in range(1, PLACES):
            yield f"-place{place}", bytes([keys, READER + 3 * place]) + record
            yield f"-symbol{place}", bytes([keys, LAYOUTS + 3 * place]) + record


def process_seeds(vector):
    head = bytes.fromhex(vector["header"])[:40]
    payload = bytes.fromhex(vector["payload"])
    payload_at = number(vector.get("payload_at", "0x0"))
    boottime = vector.get("clock", {}).get("boottime_ns", 0)
    facts = struct.pack("<BQQQ", len(head), payload_at, boottime, WALL_CLOCK)
    yield "", facts + head + payload
    cut = min(len(head), 20)
    yield "-cut", struct.pack("<BQQQ", cut, payload_at, 0, 0) + head[:cut] + payload


def payload_seeds(vector):
    payload = bytes.fromhex(vector["payload"])
    yield "", payload
    yield "-cut", payload[: len(payload) * 2 // 3]


def maps_seeds(vector):
    text = vector["maps"].encode("utf-8", "surrogateescape")
    yield "", text
    if len(text) < 400:  # after a first byte 1, nine more make a line over the limit
        yield "-long-first", b"\x01" + text[: text.find(b"\n")] + b"\x01" * 9 + b"\n" + text
        yield "-long-last", b"\x01" + text + b"\x01" * 9


SEEDS = {
    "record_fuzzer": ("thread-record", record_seeds),
    "thread_context_fuzzer": ("thread-record", context_seeds),
    "process_header_fuzzer": ("process-context", process_seeds),
    "maps_fuzzer": ("maps", maps_seeds),
    "payload_fuzzer": ("process-context", payload_seeds),
}


def compact(value):
    return json.dumps(value, separators=(",", ":")).encode()


def files_of(target):
    for path in sorted((ROOT / "fuzz/seeds" / target).iterdir()):
        yield path.stem, path.read_bytes()


def timelines():
    """The recordings, in versions of the format that are read."""
    header = (ROOT / "conformance/evidence/timeline.h").read_text(encoding="utf-8")
    newest, oldest = (int(re.search(rf"{name} = (\d+);", header)[1])
                      for name in ("kTimelineVersion", "kOldestTimelineVersion"))
    for name, data in files_of("timeline_fuzzer"):
        timeline = json.loads(data)
        if timeline["version"] < oldest:
            timeline["version"] = newest
        yield name, timeline


def timeline_seeds():
    for name, timeline in timelines():
        yield name, compact(timeline)
        if name == "everything":
            for number, (way, value) in enumerate(mistakes.TIMELINE):
                yield f"mistake{number}", compact(mistakes.changed(timeline, way, value))
        for number, process in enumerate(timeline["processes"]):
            yield f"{name}-process{number}", compact(timeline | {"processes": [process], "sessions": []})


def result_seeds():
    results = dict(files_of("result_fuzzer"))
    yield from results.items()
    for number, (of, way, value) in enumerate(mistakes.RESULT):
        yield f"mistake{number}", compact(mistakes.changed(json.loads(results[of]), way, value))


def session_seeds():
    for name, timeline in timelines():
        for number, session in enumerate(timeline["sessions"]):
            yield f"{name}-{number}", compact(session)


def protocol_seeds():
    lines = (ROOT / "conformance/testee/protocol_lines.jsonl").read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(filter(None, lines)):
        entry = json.loads(line)
        if entry["as"] != "request":
            yield f"{number}", compact(entry["line"]) + b"\n"
    yield "cut", b'noise\n\n{"id":1,"ok":true}\r\n{"ev":"armed","id":1}\n{"id":2,"ok":tr'
    yield "long", b'\x01\x01\x01\x01\n{"id":1,"ok":true}\n\x01\x01\x01 \n'


def reader_answer_seeds():
    service = {"key": "service.name", "value": {"stringValue": "checkout"}}
    kinds = [{"boolValue": True}, {"intValue": "-7"}, {"intValue": 7}, {"doubleValue": 0.5}, {"doubleValue": "NaN"},
             {"bytesValue": "AAE="}, {"arrayValue": {"values": [{"stringValue": "a"}, {}]}},
             {"kvlistValue": {"values": [service, {"key": "b", "value": {"intValue": 1}}]}}, {}]
    values = [{"key": f"k{number}", "value": value} for number, value in enumerate(kinds)]
    record = {"trace_id": "4bf92f3577b34da6a3ce929d0e0e4736", "span_id": "00f067aa0ba902b7", "flags": 1,
              "attributes": {"http_route": "/cart"}}
    few = {"reader": {"fields": ["attributes"], "kinds": ["string", "int"], "flags": False, "largest": 4096}}
    resource = {"resource": {"attributes": [service, *values]}, "attributes": values[:2]}
    replies = {"context": {"ok": True, "result": "accept", "context": resource},
               "twice": {"ok": True, "result": "accept",
                         "context": {"resource": {"attributes": [service, service | {"value": {}}]}}},
               "record": {"ok": True, "result": "accept", "record": record},
               "no-link": {"ok": True, "result": "accept", "record": {"attributes": {}}},
               "absent": {"ok": True, "result": "absent"},
               "refused": {"ok": False, "error": {"kind": "unsupported", "message": "not in this build"}}}
    wanted = {"resource": {"service.name": service["value"]}, "attributes_has": {"k1": {"intValue": -7}},
              "trace_id": record["trace_id"], "flags": 1, "link": False, "names_has": {"http_route": "/cart"},
              "names_any": {"http_route": ["/cart", "/"]}, "defaults": True}
    for name, reply in replies.items():
        reply = {"id": 1} | reply
        yield name, compact({"caps": {"reader": {}}, "reply": reply, "wanted": {}})
        yield f"{name}-few", compact({"caps": few, "reply": reply, "wanted": wanted})


def script_seeds():
    for folder in ("regressions", "samples"):
        for path in sorted((ROOT / "conformance/puppet" / folder).glob("*.jsonl")):
            lines = path.read_bytes().splitlines(keepends=True)
            yield path.stem, b"".join(lines[:60])
    # One of each operation.
    yield "everything", (ROOT / "fuzz/seeds/script_fuzzer/everything.jsonl").read_bytes()


def vector_seeds(golden):
    for path in sorted(golden.glob("*/*.json")):
        vector = json.loads(path.read_text(encoding="utf-8"))
        if path.parent.name == "src":
            for number, source in enumerate(vector["vectors"]):
                if number % 8 == 0:
                    yield f"{path.stem}-{number}", compact(vector | {"vectors": [source]})
            first = vector["vectors"][0]
            for number, (way, value) in enumerate(mistakes.SOURCE.get(path.stem, ())):
                yield f"{path.stem}-mistake{number}", compact(
                    vector | {"vectors": [mistakes.changed(first, way, value)]})
            yield f"{path.stem}-twice", compact(vector | {"vectors": [first, first]})
            yield f"{path.stem}-none", compact(vector | {"vectors": []})
        elif path.parent.name != "schema" and len(text := compact(vector)) < 4096:
            yield f"{path.parent.name}-{path.stem}", text


def proc_text_seeds():
    for name, comm in (("", b"sh"), ("-name", b"a) R 3 (\n) Z")):
        yield f"stat{name}", b"\0" + b"12 (" + comm + b") S 7 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 900 1 1\n"
    fields = (("Name", "sh"), ("Umask", "0022"), ("State", "S (sleeping)"), ("Tgid", "12"), ("Pid", "12"),
              ("PPid", "7"), ("TracerPid", "0"), ("Uid", "0\t0\t0\t0"), ("NSpid", "12\t1"),
              ("SigIgn", "0000000000001000"), ("CapEff", "000001fffeffffff"), ("Seccomp", "2"),
              ("Seccomp_filters", "1"))
    yield "status", b"\1" + "".join(f"{key}:\t{value}\n" for key, value in fields).encode()
    mappings = ("400000-401000 r-xp 00000000 08:01 7 /bin/x", "401000-402000 rw-p 00001000 08:01 7 /bin/x",
                "7f0000000000-7f0000001000 rw-s 00000000 00:01 9 /memfd:OTEL_CTX (deleted)")
    yield "smaps", b"\2" + "".join(f"{line}\nSize: 4 kB\nVmFlags: rd wr sh \n" for line in mappings).encode()


def thread_state_seeds():
    name, call = b"7 (worker) S 1 7 7 0", b"202 0x1 0x80 0x0\n"
    frames = b"".join(b"[<0>] frame%d+0x5e/0x90\n" % number for number in range(10))
    yield "waits", b"\0".join((name, b"futex_do_wait", call, frames))
    yield "runs", b"\0".join((b"7 (worker) R 1", b"0", b"running\n", b"no frame\n[<0>] main+0x1/0x2 [nfs]\n"))
    yield "name", b"7 (a) R (\n) Z 1\0" + b"w" * 300 + b"\0" + b"1" * 300
    yield "no-name", b") (\0\0\0[<0>] f"


def printed_ids_seeds():
    trace, span = b"4bf92f3577b34da6a3ce929d0e0e4736", b"00f067aa0ba902b7"
    parent = b"00-" + trace + b"-" + span + b"-01"
    yield "log", b"\x07" + b'trace_id=' + trace + b' {"traceparent":"' + parent + b'"}\n' + trace.upper() + b" " + span
    yield "parent", b"\x01" + parent
    yield "trace", b"\x3f" + trace
    yield "zero", b"\x10" + b"0" * 32 + b" " + parent.replace(span, b"0" * 16) + b" " + parent.replace(trace, b"0" * 32)
    yield "longer", b"\x20" + parent + b"0 x" + parent + b" " + parent[1:] + b" " + trace + b"-_" + b"ff" + parent[2:]


def otep_seeds():
    for path in sorted((ROOT / "fuzz/seeds/otep").glob("*.md")):
        yield path.stem, path.read_bytes()
        yield f"{path.stem}-crlf", path.read_bytes().replace(b"\n", b"\r\n")
    yield "mark", b"\xef\xbb\xbf# Hull\n\nDry. Wet.\n## Hull\n```\nint x;\n// A. B.\n//\n// C\n```\nlast"
    yield "none", b"No heading.\n#None\n"
    yield "not-utf8", b"# H\n\xc3(\xed\xa0\x80\n"


def catalogue_seeds():
    for path in sorted((ROOT / "conformance/requirements").glob("4*.json")):
        catalogue = json.loads(path.read_text(encoding="utf-8"))
        rows = catalogue["requirements"]
        # Rows that refer to each other are refused alone.
        for first in range(0, len(rows), 24):
            yield f"{path.stem}-{first}", compact(catalogue | {"requirements": rows[first:first + 3]})
    boats = json.loads((ROOT / "fuzz/seeds/otep/boats.json").read_bytes())
    yield "boats", compact(boats)
    hull = next(row for row in boats["requirements"] if row["id"] == "pctx.hull.dry")
    for number, change in enumerate(mistakes.ROW):
        yield f"row{number}", compact(boats | {"requirements": [hull | change]})
    for number, (way, value) in enumerate(mistakes.CATALOGUE):
        yield f"mistake{number}", compact(mistakes.changed(boats, way, value))
    for name, second in (("id", hull), ("mutant", hull | {"id": "pctx.hull.wet"})):
        yield f"same-{name}", compact(boats | {"requirements": [hull, second]})
    yield "member-twice", compact(boats).replace(b'"otep"', b'"otep":4719,"otep"')
    yield "cut", compact(boats)[:300]


def read_vectors(folder):
    vectors = []
    for path in sorted(folder.glob("*.json")):
        try:
            vectors.append((path, json.loads(path.read_text(encoding="utf-8"))))
        except (OSError, ValueError) as error:
            fail(f"{path}: not JSON: {error}")
    if not vectors:
        fail(f"no vectors in {folder}: `ctxconf golden regenerate` writes them")
    return vectors


OTHER_SEEDS = {
    "timeline_fuzzer": timeline_seeds,
    "result_fuzzer": result_seeds,
    "protocol_fuzzer": protocol_seeds,
    "session_fuzzer": session_seeds,
    "catalogue_fuzzer": catalogue_seeds,
    "reader_answer_fuzzer": reader_answer_seeds,
    "script_fuzzer": script_seeds,
    "elf_fuzzer": elf_seeds,
    "modules_fuzzer": modules_seeds,
    "code_location_fuzzer": elf_seeds,
    "proc_text_fuzzer": proc_text_seeds,
    "loaded_at_fuzzer": loaded_at_seeds,
    "loaded_file_fuzzer": loaded_file_seeds,
    "callers_fuzzer": callers_seeds,
    "thread_state_fuzzer": thread_state_seeds,
    "printed_ids_fuzzer": printed_ids_seeds,
    "otep_fuzzer": otep_seeds,
    "expectations_fuzzer": lambda: files_of("expectations_fuzzer"),
}
TARGETS = [*SEEDS, *OTHER_SEEDS, "vector_fuzzer"]


def make(golden):
    files = {}
    for target, (kind, seeds) in SEEDS.items():
        for path, vector in read_vectors(golden / kind):
            try:
                files.update({(target, path.stem + suffix): data for suffix, data in seeds(vector)})
            except (KeyError, TypeError, ValueError, AttributeError, struct.error) as error:
                fail(f"{path}: no generated {kind} vector ({type(error).__name__}: {error}); "
                     "`ctxconf golden verify` says more")
    for target, seeds in OTHER_SEEDS.items():
        files.update({(target, name): data for name, data in seeds()})
    files.update({("vector_fuzzer", name): data for name, data in vector_seeds(golden)})
    return files


def main():
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    golden, out = map(pathlib.Path, sys.argv[1:])
    files = make(golden)
    for target in TARGETS:
        shutil.rmtree(out / target, ignore_errors=True)
        (out / target).mkdir(parents=True)
    for (target, name), data in files.items():
        (out / target / name).write_bytes(data)
    for target in TARGETS:
        print(f"{sum(t == target for t, _ in files)} seeds for {target}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
