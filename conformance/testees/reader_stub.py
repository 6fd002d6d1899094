#!/usr/bin/env python3
"""The smallest adapter for `ctxconf reader`: copy it, and call your reader in the two functions.

It decodes records, and finds no process context: `reader.process` is not declared yet.
docs/reader-authors.md shows the next steps, docs/testee-protocol.md has all operations.
"""

import json
import os
import sys

CAPABILITIES = {"reader.record": {}}  # add "reader.process" when process() works


def record(request):
    """What your reader makes of these bytes of a record, and of the names of its attributes."""
    data, names = bytes.fromhex(request["hex"]), request["key_map"]
    if len(data) < 28 or data[24] != 1:
        return {"result": "absent"}
    seen = {"attributes": {}}
    if any(data[:16]) and any(data[16:24]):
        seen |= {"trace_id": data[:16].hex(), "span_id": data[16:24].hex(), "flags": data[25]}
    area = data[28:28 + int.from_bytes(data[26:28], "little")]
    while len(area) >= 2 and len(area) >= 2 + area[1]:
        index, value, area = area[0], area[2:2 + area[1]], area[2 + area[1]:]
        if index < len(names):
            seen["attributes"][names[index]] = value.decode(errors="replace")
    return {"result": "accept", "record": seen}


def process(request):
    """What your reader finds in the process request["pid"]; "absent" means that it has no context."""
    return {"result": "absent"}


def hello(request):
    return {"v": 1, "pid": os.getpid(), "adapter": {"name": "reader_stub.py", "version": "1"},
            "caps": CAPABILITIES}


OPERATIONS = {"hello": hello, "bye": lambda request: {},
              "reader.record": record, "reader.process": process}

for line in sys.stdin:
    request = json.loads(line)
    if request["op"] in OPERATIONS:
        reply = {"ok": True, **OPERATIONS[request["op"]](request)}
    else:
        reply = {"ok": False, "error": {"kind": "unsupported", "message": request["op"]}}
    print(json.dumps({"id": request["id"], **reply}), flush=True)
    if request["op"] == "bye":
        break
