#!/usr/bin/env python3
"""An adapter for `ctxconf reader`, and the reader of process contexts (OTEP 4719) that it drives.
Thread contexts (OTEP 4947) are in reader_threads.py.

The first half stands where your reader would be; the second half is the adapter. Neither needs
more than the standard library.

usage: reader.py [--watch SECONDS]

With --watch the reader looks at each process by itself, as a profiler does, and reports what has
changed. Without it the reader looks when it is asked.
"""

import base64
import contextlib
import json
import math
import os
import select
import struct
import sys
import time

import reader_threads

NAMES = (b"[anon_shmem:OTEL_CTX]", b"[anon:OTEL_CTX]", b"/memfd:OTEL_CTX")
HEADER = struct.Struct("=8sIIQQ")  # signature, version, size, timestamp, pointer
PAYLOAD_LIMIT = 1 << 20
PAUSES_S = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064)  # while an update goes on
VARINT, FIXED64, BYTES, GROUP, END_OF_GROUP, FIXED32 = range(6)
DEEPEST = 30  # of nested values


class Malformed(Exception):
    """Bytes that are not the message they should be."""


class Memory:
    """The memory of one program: after an exec nothing can be read through this any more."""

    def __init__(self, pid):
        self.fd = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)

    def close(self):
        os.close(self.fd)

    def some(self, address, size):
        """As many of the bytes as there are."""
        out = b""
        while len(out) < size:
            try:
                part = os.pread(self.fd, size - len(out), address + len(out))
            except (OSError, OverflowError):  # an address above 2^63 is not a file position
                break
            if not part:
                break
            out += part
        return out

    def copy(self, address, size):
        """All of the bytes, or None."""
        out = self.some(address, size)
        return out if len(out) == size else None


def candidates(pid):
    """Addresses of the mappings whose name begins as that of a context."""
    with open(f"/proc/{pid}/maps", "rb") as maps:
        for line in maps:
            columns = line.split(maxsplit=5)
            if len(columns) == 6 and columns[5].startswith(NAMES):
                yield int(columns[0].partition(b"-")[0], 16)


def sample(memory, address):
    """Result and context of one candidate: the payload counts if the header is the same after it."""
    header = memory.copy(address, HEADER.size)
    if header is None:
        return "reject", None
    signature, version, size, timestamp, pointer = HEADER.unpack(header)
    if signature != b"OTEL_CTX" or version != 2:
        return "reject", None
    if timestamp == 0:
        return "retry", None
    payload = memory.copy(pointer, size) if size <= PAYLOAD_LIMIT else None
    if memory.copy(address, HEADER.size) != header:
        return "retry", None
    try:
        return ("reject", None) if payload is None else ("accept", process_context(payload))
    except (Malformed, UnicodeDecodeError):
        return "reject", None


def look(pid):
    """Result and context of a process, from one look: the first good candidate counts."""
    worst = "absent"
    try:
        with contextlib.closing(Memory(pid)) as memory:
            for address in candidates(pid):
                result, context = sample(memory, address)
                if result == "accept":
                    return result, context
                if worst != "retry":
                    worst = result
    except OSError:  # it has ended, or belongs to somebody else
        return "absent", None
    return worst, None


def read_process(pid):
    """The same, from as many looks as an update may need."""
    result, context = look(pid)
    for pause in PAUSES_S:
        if result != "retry":
            break
        time.sleep(pause)
        result, context = look(pid)
    return result, context


def varint(data, at):
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return value & (1 << 64) - 1, at
    raise Malformed("a varint that does not end")


def fields(data):
    """Each field of a message: its number, its wire type and its content."""
    at, groups = 0, []
    while at < len(data):
        tag, at = varint(data, at)
        number, wire = tag >> 3, tag & 7
        if not 0 < number < 1 << 29:
            raise Malformed("a field of a number that there is not")
        content = None
        if wire == VARINT:
            content, at = varint(data, at)
        elif wire in (FIXED64, BYTES, FIXED32):
            size = {FIXED64: 8, FIXED32: 4}.get(wire)
            if size is None:
                size, at = varint(data, at)
            content, at = data[at:at + size], at + size
            if at > len(data):
                raise Malformed("a field that does not end")
        elif wire == GROUP:
            groups.append(number)
            continue
        elif wire != END_OF_GROUP or not groups or groups.pop() != number:
            raise Malformed("a wire type that there is not")
        if not groups and wire != END_OF_GROUP:
            yield number, wire, content
    if groups:
        raise Malformed("a group that does not end")


def messages(data, number):
    return [content for n, wire, content in fields(data) if (n, wire) == (number, BYTES)]


def joined(data, number):
    """A message that is there in pieces is one: so the format defines it. None: it is not there."""
    pieces = messages(data, number)
    return b"".join(pieces) if pieces else None


def process_context(payload):
    resource = joined(payload, 1)
    context = {"attributes": key_values(payload, 2)}
    if resource is not None:
        context["resource"] = {"attributes": key_values(resource, 1)}
    return context


def key_values(data, number, depth=0):
    """Of equal keys the last one counts."""
    out = {}
    for pair in messages(data, number):
        key = b"".join(messages(pair, 1)[-1:]).decode()
        out[key] = any_value(joined(pair, 2) or b"", depth)
    return [{"key": key, "value": value} for key, value in out.items()]


def double(content):
    number = struct.unpack("<d", content)[0]
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


KINDS = {  # of AnyValue, by number and wire type; the names are those of OTLP/JSON
    (1, BYTES): ("stringValue", lambda c, depth: c.decode()),
    (2, VARINT): ("boolValue", lambda c, depth: c != 0),
    (3, VARINT): ("intValue", lambda c, depth: str(c - (1 << 64) if c >> 63 else c)),
    (4, FIXED64): ("doubleValue", lambda c, depth: double(c)),
    (5, BYTES): ("arrayValue", lambda c, depth: {
        "values": [any_value(one, depth + 1) for one in messages(c, 1)]}),
    (6, BYTES): ("kvlistValue", lambda c, depth: {"values": key_values(c, 1, depth + 1)}),
    (7, BYTES): ("bytesValue", lambda c, depth: base64.b64encode(c).decode()),
}


def any_value(data, depth):
    """The last kind counts, with all its pieces; a kind that is not known is no value."""
    if depth > DEEPEST:
        raise Malformed("a value that nests too deep")
    kind = content = None
    for number, wire, piece in fields(data):
        if (number, wire) in KINDS:
            more = number in (5, 6) and kind == (number, wire)
            kind, content = (number, wire), content + piece if more else piece
    if kind is None:
        return {}
    name, show = KINDS[kind]
    return {name: show(content, depth)}


def read_thread(pid, tid):
    """Result and record of a thread. A name that is not known yet is looked up once more."""
    for _ in range(2):
        result, context = read_process(pid)
        key_map = reader_threads.key_map(context) if result == "accept" else None
        if key_map is None:
            return "retry" if result == "retry" else "absent", None
        try:
            with contextlib.closing(Memory(pid)) as memory:
                data = reader_threads.read_record(memory, pid, tid)
        except TimeoutError:  # it is in a call that no signal interrupts
            return "retry", None
        except OSError:  # it has ended, or cannot be stopped
            return "absent", None
        result, record, unknown = reader_threads.parse(data, key_map)
        if not unknown:
            break
    return result, record


# What follows is the adapter: one function for each operation of docs/testee-protocol.md.

POLL_S = float(sys.argv[2]) if sys.argv[1:2] == ["--watch"] else None
WATCHED = {}  # by process: what was reported last, by thread; None is the process itself


def hello(request):
    process, thread = {"reader.process": {}}, {"reader.thread": {}}
    if POLL_S is not None:
        process = {"reader.watch": {"poll_ms": max(1, round(POLL_S * 1000))}}
        thread = {"reader.watch_threads": {}}
    return {"v": 1, "pid": os.getpid(), "adapter": {"name": "reader.py", "version": "1"},
            "sdk": {"name": "reader.py", "version": "1", "language": "python"},
            "sources": {"process": "conformance/testees/reader.py",
                        "thread": "conformance/testees/reader_threads.py"},
            "caps": {"reader": {"payload_bytes": PAYLOAD_LIMIT}, "reader.record": {},
                     "reader.forget": {}, **process, **(thread if reader_threads.HERE else {})}}


def shown(name, result, content):
    return {"result": result} if content is None else {"result": result, name: content}


OPERATIONS = {
    "hello": hello, "bye": lambda request: {},
    "reader.process": lambda request: shown("context", *read_process(request["pid"])),
    "reader.thread": lambda request: shown(
        "record", *read_thread(request["pid"], request["tid"])),
    "reader.record": lambda request: shown(
        "record", *reader_threads.parse(bytes.fromhex(request["hex"]), request["key_map"])[:2]),
    "reader.watch": lambda request: WATCHED.update({request["pid"]: {}}) or {},
    "reader.forget": lambda request: WATCHED.pop(request["pid"], None) and {},
}


def answer(request):
    if request["op"] not in OPERATIONS:
        return {"ok": False, "error": {"kind": "unsupported", "message": request["op"]}}
    try:
        return {"ok": True, **(OPERATIONS[request["op"]](request) or {})}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        return {"ok": False, "error": {"kind": "bad-request", "message": repr(error)}}


def say(line):
    print(json.dumps(line), flush=True)


def report(pid, thread, seen):
    if seen != WATCHED[pid].get(thread):
        WATCHED[pid][thread] = seen
        say({"ev": "saw", "pid": pid, **({} if thread is None else {"tid": thread}), **seen})


def poll():
    for pid in list(WATCHED):
        report(pid, None, shown("context", *read_process(pid)))
        with contextlib.suppress(OSError):
            for tid in map(int, os.listdir(f"/proc/{pid}/task") if reader_threads.HERE else []):
                report(pid, tid, shown("record", *read_thread(pid, tid)))


def main():
    pending, next_look = b"", time.monotonic()
    while True:
        until = None if POLL_S is None else max(0.0, next_look - time.monotonic())
        if not select.select([0], [], [], until)[0]:
            next_look = time.monotonic() + POLL_S
            poll()
            continue
        chunk = os.read(0, 1 << 16)
        if not chunk:
            return
        *lines, pending = (pending + chunk).split(b"\n")
        for request in map(json.loads, lines):
            say({"id": request["id"], **answer(request)})
            if request["op"] == "bye":
                return


main()
