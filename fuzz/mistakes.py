"""What make_seeds.py gets wrong on purpose in sound JSON: one thing in each seed."""
import copy

GONE = object()

IMAGE = "processes/0/images/0"
SNAPSHOT = f"{IMAGE}/snapshots/0"
CANDIDATE = f"{SNAPSHOT}/candidates/0"
# Mistakes in fuzz/seeds/timeline_fuzzer/everything.json: the way to a member, and what is there instead.
TIMELINE = (
    ("format", "other"), ("version", 11), ("version", GONE), ("version", "12"), ("mode", "other"), ("target", "app"),
    ("target/0", 5), ("target/0", {"hex": "0"}), ("milliseconds", -1), ("page_size", 0), ("host", {}), ("host/0", []),
    ("host/0/available", 1), ("stops", 1.5), ("reading", "other"), ("expected_trace_ids/0", "0af7"),
    ("printed_span_ids/0", "B7AD6B7169203331"), ("cells/1/session", 1), ("cells/1/session", 0),
    ("sessions", [{}, {}]), ("processes/0/pid", 0), ("processes/0/exit_code", "0"), (f"{IMAGE}/traceparent", "00-1"),
    (f"{IMAGE}/libc", "musl x"),
    (f"{CANDIDATE}/entries", []), (f"{CANDIDATE}/entries/0/end", "0x1"), (f"{CANDIDATE}/entries/0/begin", "7f00"),
    (f"{CANDIDATE}/entries/0/permissions", "rw"), (f"{CANDIDATE}/entries/0/device", [1]),
    (f"{CANDIDATE}/vm_flags", [None, 5]), (f"{CANDIDATE}/memory/0/readable", 5000000000),
    (f"{CANDIDATE}/memory/0/bytes", "00010203"), (f"{CANDIDATE}/memory/0/bytes", "0g"),
    (f"{SNAPSHOT}/moment", "other"),
    (f"{SNAPSHOT}/last_seen_ns", 1), (f"{IMAGE}/calls/0/args", ["0x1"]), (f"{IMAGE}/calls/0/before", "00" * 33),
    (f"{IMAGE}/calls/0/after", "00" * 33), (f"{IMAGE}/calls/0/snapshot", 1), (f"{IMAGE}/stores/0/before", "00" * 33),
    (f"{IMAGE}/stores/0/after", "00" * 33), (f"{IMAGE}/stores/0/words", 16), (f"{IMAGE}/stores/0/location", 9),
    (f"{IMAGE}/stores/0/order", 99), (f"{IMAGE}/watches/0/found", "00" * 33), (f"{IMAGE}/watches/0/ended_order", 1),
    (f"{IMAGE}/step_traces/0/from", "other"), (f"{IMAGE}/step_traces/0/views/0/order", 9),
    (f"{IMAGE}/step_traces/0/views/0/header", "00" * 33), (f"{IMAGE}/step_traces/0/views/1/location", 9),
    (f"{IMAGE}/slot_step_traces/0/views/0/order", 99), (f"{IMAGE}/slot_step_traces/0/views/0/location", 9),
    (f"{IMAGE}/record_stores/0/location", 9), (f"{IMAGE}/record_stores/0/words", 99),
    (f"{IMAGE}/modules/0/relocations/0/kind", "other"), (f"{IMAGE}/modules/0/tls", None),
    (f"{IMAGE}/threads/0/module", 1), (f"{IMAGE}/hidden_slots/0/module", 1), (f"{IMAGE}/exits/0/module", 1),
    (f"{IMAGE}/defined_together", [1]), (f"{IMAGE}/locations/0/callers/0/source_line", -1),
)

FINDING = "results/0/findings/0"
# Mistakes in the seeds of result_fuzzer: which seed, the way to a member, and what is there instead.
RESULT = (
    ("wrap", "format", "other"), ("wrap", "version", 0), ("wrap", "suite", GONE), ("wrap", "suite", []),
    ("wrap", "suite/version", 1), ("wrap", "spec/0/otep", "4719"), ("wrap", "spec/0/otep", 2**40),
    ("wrap", "spec/0/otep", -1), ("wrap", "run/target", "app"), ("wrap", "run/seconds", "1"),
    ("wrap", "run/reading", "other"), ("wrap", "run/seed", "5eed"), ("wrap", "run/partial", True),
    ("wrap", "run/partial", 1), ("wrap", "run/target_ending", "exited 0"), ("wrap", "results/0/id", "pctx.no.such"),
    ("wrap", "run/target_ended/how", "other"), ("wrap", "run/target_ended/how", "killed-by-us"),
    ("wrap", "run/target_ended", GONE), ("wrap", "run/target_ended", {"how": "killed", "signal": 9}),
    ("wrap", "results/0/revision", "2020-01-01"), ("wrap", "results/0/outcome", "\x1b[31m"),
    ("wrap", "results/0/expected", "as-expected"), ("wrap", "results/0/expected", "other"),
    ("wrap", "totals/pass", 2**31 - 1), ("wrap", "totals/fail", -1), ("wrap", "images/0/session", 2),
    ("wrap", "images/0/pid", 2**31),
    ("wrap", "expectation_problems", [{"line": 2, "exit_code": 5, "text": "it is gone", "mend": "sed x"}]),
    ("wrap", "floor", [{"requirement": "pctx.header.version", "why": "judged in x", "now": "n/a", "remedy": ""}]),
    ("wrap", "problems", [{"outcome": "crash", "pid": 12, "image": 0, "session": 1, "text": "it crashed"}]),
    ("wrap", "faults", [{"step": "prctl", "fault": "EPERM", "outcome": "fail", "requirements": ["pctx.header.version"],
                         "text": "a text", "output": "a line\n", "session": 1, "options": ["--inject", "x"]}]),
    ("wrap", f"{FINDING}/outcome", "na"), ("wrap", f"{FINDING}/evidence", ["line"] * 300),
    ("wrap", f"{FINDING}/saw", "long " * 5000),
    ("wrap", f"{FINDING}/hexdumps", [{
        "title": "header", "address": "0x7f0000000000", "bytes": "4f54454c",
        "marks": [{"offset": 1, "length": 2, "label": "wrong"}, {"offset": 2**63, "length": 2**63, "label": ""}],
        "expected": {"vector": "pctx/inline-one-page", "bytes": "4f54454d",
                     "masks": [{"offset": 3, "length": 1, "name": "last", "rule": "any"}]}}]),
    ("wrap", f"{FINDING}/hexdumps", [{"title": "", "address": "7f", "bytes": "", "marks": []}]),
    ("wrap", f"{FINDING}/hexdumps", [{"title": "", "address": "0x7f", "bytes": "4f5", "marks": []}]),
    ("wrap", f"{FINDING}/operation", {
        "kind": "update", "header": "0x1000", "before": "complete", "steps_before": 1, "steps_behind": 2, "steps": [
            {"kind": "store", "finds": "nothing", "text": "a store", "at": "x.cc:1", "thread": 12, "wrong": True,
             "changes": [{"lane": "timestamp", "was": "1", "is": "0"}]}]}),
    ("wrap", f"{FINDING}/operation", {"kind": "other", "header": "0x1000", "before": "complete", "steps": []}),
    ("wrap", f"{FINDING}/operation", {"kind": "publication", "header": "0x1000", "before": "?", "steps": [{}] * 300}),
)

# Mistakes in a requirement of fuzz/seeds/otep/boats.json: what it has instead.
ROW = (
    {"id": "pctx.hull"}, {"id": "pctx..dry"}, {"id": "pctx.-hull.dry"}, {"id": "pctx.Hull.dry"},
    {"id": "pctx.hull.dry-"},
    {"id": "pctx.a.b.c.d"}, {"id": "pctx.hull-.dry"}, {"id": "hull.dry"}, {"id": "tctx.hull.dry"}, {"id": ""},
    {"id": 5}, {"id": "pctx.reader.dry"}, {"anchor": "The hull"}, {"anchor": ""}, {"lines": [7]}, {"lines": [0, 8]},
    {"lines": [8, 7]}, {"lines": [1, 2**40]}, {"sentences": None}, {"sentences": None, "fingerprint": None},
    {"sentences": [1, "2"]}, {"fingerprint": "00"}, {"fingerprint": "G" * 64}, {"strength": "must"},
    {"strength": "MAY"},
    {"strength": "SHOULD"}, {"strength": "SHOULD", "severity": "warning"}, {"basis": "implied"}, {"basis": 1},
    {"basis": "implied", "severity": "warning"}, {"severity": "info"}, {"role": "reader"}, {"text": "Short."},
    {"text": "A text without an end"}, {"text": "Two lines.\nThe second."},
    {"check": "Look at the boat from outside."},
    {"check": "Prints."}, {"mutant": "Sinks."}, {"variants": {}}, {"variants": ["one way", "one way"]},
    {"variants": ["x"]}, {"variants": [5]}, {"excluded": "Nobody can see it."}, {"excluded": 5},
    {"excluded": "Nobody can see it.", "observe": {"level": "none", "modes": []}},
    {"observe": {"level": "none", "modes": []}}, {"observe": {"level": "snapshot"}},
    {"observe": {"level": "snapshot", "modes": {}}}, {"observe": {"level": "snapshot", "modes": ["wrap", "wrap"]}},
    {"observe": {"level": "snapshot", "modes": ["reader"]}}, {"observe": {"level": "snapshot", "modes": ["elf"]}},
    {"observe": {"level": "stores", "modes": ["attach"]}}, {"observe": {"level": "steps", "modes": ["other"]}},
    {"observe": []}, {"unnoticed": "A reader waits for it."}, {"severity_because": "It is needed all the same."},
    {"basis": "step", "unnoticed": "A reader waits for it.", "severity": "warning"}, {"unnoticed": "no"},
    {"severity": "warning", "severity_because": "It is needed all the same."}, {"other": 1},
)
# Mistakes in the file: the way to a member, and what is there instead.
CATALOGUE = (
    ("otep", 1), ("revision", "2026-1-023"), ("revision", "20260102"), ("revision", "2026-01-0x"),
    ("source_blob", "00"),
    ("source_blob", 5), ("requirements", []), ("requirements", {}), ("requirements/0", []),
    ("requirements/0/why", GONE),
    ("otep", GONE), ("other", 1),
)

# Mistakes in the first vector of each kind of source: the way to a member, and what is there instead.
SOURCE = {
    "process-contexts": (
        ("byte_order", "big"), ("byte_order", "other"), ("header", {"signature": "OTEL"}),
        ("header", {"signature": "é" * 4}),
        ("header", {"signature": "OTEL_CTX", "version": 1, "payload": "0x1000", "payload_size": 2**32}),
        ("header", {"version": 3, "timestamp": 0, "payload": "0x0"}), ("header", {"other": 1}), ("cut", 8),
        ("cut", 99),
        ("mapping", {"size": 0}), ("mapping", {"size": 2**60}), ("mapping", {"address": "0xfffffffffffffff8"}),
        ("mapping", {"address": "0xfffffffffffff000", "size": 4096}), ("mapping", []),
        ("payload_at", "0x7f5e10000010"),
        ("payload_at", "other"), ("payload_at", "0xffffffffffffffff"), ("clock", {"boottime_ns": 5}),
        ("layout", "H0"), ("layout", "H1"), ("layout", "other"), ("result", "other"), ("result", ["reject"]),
        ("requirements", [5]), ("requirements", ["pctx.header.layout"] * 2), ("comment", GONE), ("id", "rec/other"),
        ("id", "pctx/"), ("id", "pctx/a/b"), ("expect", GONE), ("expect", {"resource": []}), ("other", 1),
        ("payload", {"raw": "0a00"}), ("payload", {"hex": "0a0"}), ("payload", {"resource": {}}),
        ("payload", {"resource": [["a"]]}), ("payload", {"resource": [["a", None], ["b", {}], ["a", {"bool": True}]]}),
        ("payload", {"resource": [["a", {"double": "NaN"}], ["b", {"double": "Infinity"}], ["c", {"double": "x"}]]}),
        ("payload", {"resource": [["a", {"int": 2**63}]]}), ("payload", {"resource": [["a", {"bytes": "0"}]]}),
        ("payload", {"resource": [["a", {"string": "x", "int": 1}]]}),
        ("payload", {"resource": [["a", {"other": 1}]]}),
        ("payload", {"resource": [["a", {"array": [{"int": -1}, {"kvlist": [["b", {"bytes": "00"}]]}]}]]}),
        ("payload", {"fields": [{"field": 1, "varint": 5}, {"field": 2, "fixed32": "00000000"},
                                {"field": 3, "group": [{"field": 4, "hex": "00"}]}]}),
        ("payload", {"fields": [{"field": 1, "fixed64": "00"}]}), ("payload", {"fields": [{"field": 1}]}),
        ("payload", {"fields": [{"field": 2**30, "varint": 1, "bytes": 11}]}),
    ),
    "thread-records": (
        ("trace_id", "4bf9"), ("trace_id", "4BF92F3577B34DA6A3CE929D0E0E4736"), ("span_id", GONE), ("valid", 256),
        ("valid", -1), ("flags", "1"), ("entries", {}), ("entries", [[]]), ("entries", [{"key": 0}]),
        ("entries", [{"key": 0, "text": "a", "hex": "61"}]), ("entries", [{"key": 256, "text": "a"}]),
        ("entries", [{"key": 1, "text": "a", "times": 256}]), ("entries", [{"key": 1, "hex": "ff", "length": 9}]),
        ("entries", [{"key": 1, "text": "ab", "times": 65536, "length": 1}]),
        ("entries", [{"key": 1, "text": "abc", "copies": 65000}]),
        ("entries", [{"key": 1, "text": "a", "copies": 30000}]),
        ("entries", [{"key": 1, "text": "a", "other": 1}]), ("attrs_data_size", 65536), ("attrs_data_size", 3),
        ("tail", "00"), ("tail", "0"), ("cut", 5), ("cut", 99), ("record", "00" * 28), ("key_map", {}),
        ("key_map", [5]),
        ("schema", "other"), ("layout", "T0"), ("layout", "other"),
        ("masks", [{"offset": 30, "length": 10, "name": "a",
                                                                                "rule": "b"}]),
        ("masks", [{"offset": 1, "length": 0, "name": "a", "rule": "b"}]), ("masks", [5]), ("expect_any", []),
        ("expect", {"attributes": []}),
    ),
    "maps": (
        ("lines", {}), ("lines", [5]), ("lines", ["a line"]), ("lines", [{"text": "a", "then": "b", "times": 3}]),
        ("lines", [{"text": "a", "copies": 65536}]), ("lines", [{"then": "b"}]),
        ("lines", [{"text": "a", "other": 1}]),
        ("lines", [{"text": "long " * 20, "copies": 65536}]), ("final_newline", False), ("final_newline", 1),
        ("maps", "1000-2000 rw-p 00000000 00:00 0 \n"), ("expect", []), ("lines", GONE), ("lines", []),
    ),
}


def changed(document, way, value):
    """A copy with another value there, or with nothing."""
    out = copy.deepcopy(document)
    at = out
    *before, last = [int(word) if word.isdigit() else word for word in way.split("/")]
    for name in before:
        at = at[name]
    if value is GONE:
        del at[last]
    else:
        at[last] = value
    return out
