#!/usr/bin/env python3
"""Encodes the sources of the golden vectors a second time, sharing nothing with ctxconf.

usage: second_encoder.py SOURCE... --proto DIR

Headers and records are packed here from the tables of the OTEPs; messages are written as text and
encoded by protoc, one run for all. Prints {ID: {"header", "payload"} | {"record"} | {"maps"}}.
docs/golden.md describes the sources."""
import argparse
import json
import math
import os
import struct
import subprocess
import sys

# The offsets of version, size, timestamp and pointer in each header layout, and its size.
HEADERS = {
    "H0": (None, None, None, 8, 16),
    "H1": (8, 12, None, 16, 24),
    "H2": (8, 12, None, 16, 24),
    "H3": (8, 20, 12, 24, 32),
    "H4": (8, 12, 16, 24, 32),
    "H5": (8, 12, 16, 24, 32),
}


def number(value):
    return int(value, 16) if isinstance(value, str) else value


# --- process contexts

def header(vector, payload_size):
    layout = vector.get("layout", "H5")
    at_version, at_size, at_time, at_pointer, size = HEADERS[layout]
    order = ">" if vector.get("byte_order", "little") == "big" else "<"
    said = vector.get("header", {})
    out = bytearray(size)
    signature = said.get("signature", "OTL-PROC" if layout == "H0" else "OTEL_CTX")
    out[0:8] = signature.encode("latin-1")
    base = number(vector.get("mapping", {}).get("address", "0x7f5e10000000"))
    where = vector.get("payload_at", "inline")
    pointer = base + size if where == "inline" else number(where)
    for at, kind, name, default in (
        (at_version, "I", "version", 1 if layout == "H1" else 2),
        (at_size, "I", "payload_size", payload_size),
        (at_time, "Q", "timestamp", 10**12),
        (at_pointer, "Q", "payload", pointer),
    ):
        if at is not None:
            struct.pack_into(order + kind, out, at, number(said.get(name, default)))
    return bytes(out[: vector.get("cut", size)])


def quoted(raw):
    return '"' + "".join(f"\\{b:03o}" for b in raw) + '"'


def value_text(value):
    """The fields of an AnyValue, protobuf text format."""
    if not value:
        return ""
    ((kind, v),) = value.items()
    if kind == "string":
        return "string_value: " + quoted(v.encode())
    if kind == "bytes":
        return "bytes_value: " + quoted(bytes.fromhex(v))
    if kind == "bool":
        return "bool_value: " + ("true" if v else "false")
    if kind == "int":
        return f"int_value: {v}"
    if kind == "double":
        v = float(v)
        return "double_value: " + ("nan" if math.isnan(v) else repr(v))
    if kind == "array":
        return "array_value {" + "".join(f" values {{ {value_text(i)} }}" for i in v) + " }"
    if kind == "kvlist":
        return "kvlist_value {" + pairs_text("values", v) + " }"
    raise ValueError(f"unknown kind of value: {kind}")


def pairs_text(field, pairs):
    out = ""
    for key, value in pairs:
        body = "" if value is None else f" value {{ {value_text(value)} }}"
        out += f" {field} {{ key: {quoted(key.encode())}{body} }}"
    return out


def message_text(payload):
    out = ""
    if "resource" in payload:
        out += "resource {" + pairs_text("attributes", payload["resource"]) + " }"
    return out + pairs_text("attributes", payload.get("attributes", []))


def varint(value, size=0):
    value &= (1 << 64) - 1
    groups = [value & 127]
    while (value := value >> 7) or len(groups) < size:
        groups.append(value & 127)
    return bytes(g | 128 for g in groups[:-1]) + bytes(groups[-1:])


def wire(fields):
    out = b""
    for f in fields:
        tag = lambda kind: varint(f["field"] << 3 | kind, f.get("tag_bytes", 0))
        if "varint" in f:
            out += tag(0) + varint(f["varint"], f.get("varint_bytes", 0))
        elif "fixed64" in f:
            out += tag(1) + bytes.fromhex(f["fixed64"])
        elif "fixed32" in f:
            out += tag(5) + bytes.fromhex(f["fixed32"])
        elif "group" in f:
            out += tag(3) + wire(f["group"]) + tag(4)
        else:
            body = (f["text"].encode() if "text" in f else
                    bytes.fromhex(f["bytes"]) if "bytes" in f else wire(f["message"]))
            out += tag(2) + varint(f.get("length", len(body)), f.get("length_bytes", 0)) + body
    return out


def run_protoc(texts, proto):
    """Each text as a ProcessContext, in order; one run of protoc."""
    done = subprocess.run(
        ["protoc", "--encode=ProcessContexts", f"--proto_path={proto}",
         os.path.join(proto, "process_contexts.proto")],
        input="".join(f"m {{ {t} }}\n" for t in texts).encode(), capture_output=True)
    if done.returncode != 0:
        sys.exit("protoc: " + done.stderr.decode(errors="replace").strip())
    out, at = [], 0
    while at < len(done.stdout):
        assert done.stdout[at] == 0x0A
        at, size, shift = at + 1, 0, 0
        while True:
            byte = done.stdout[at]
            at, size, shift = at + 1, size | (byte & 127) << shift, shift + 7
            if byte < 128:
                break
        out.append(done.stdout[at:at + size])
        at += size
    assert len(out) == len(texts)
    return out


def process_contexts(vectors, proto):
    payloads = [v.get("payload", {}) for v in vectors]
    typed = [p for p in payloads if "wire" not in p and "hex" not in p and p]
    encoded = iter(run_protoc([message_text(p) for p in typed], proto) if typed else [])
    out = {}
    for v, p in zip(vectors, payloads):
        payload = (wire(p["wire"]) if "wire" in p else bytes.fromhex(p["hex"]) if "hex" in p else
                   next(encoded) if p else b"")
        out[v["id"]] = {"header": header(v, len(payload)).hex(), "payload": payload.hex()}
    return out


# --- thread records

def record(vector):
    if "record" in vector:
        return bytes.fromhex(vector["record"])
    area = b""
    for e in vector.get("entries", []):
        value = e["text"].encode() if "text" in e else bytes.fromhex(e["hex"])
        value *= e.get("times", 1)
        area += (bytes([e["key"], e.get("length", len(value))]) + value) * e.get("copies", 1)
    out = struct.pack("<16s8sBBH", bytes.fromhex(vector.get("trace_id", "00" * 16)),
                      bytes.fromhex(vector.get("span_id", "00" * 8)), vector.get("valid", 1),
                      vector.get("flags", 0), vector.get("attrs_data_size", len(area)))
    out += area + bytes.fromhex(vector.get("tail", ""))
    return out[: vector.get("cut", len(out))]


# --- maps texts

def maps(vector):
    if "maps" in vector:
        return vector["maps"]
    out = ""
    for line in vector["lines"]:
        if not isinstance(line, str):
            line = "\n".join([line["text"] + line.get("then", "") * line.get("times", 0)]
                             * line.get("copies", 1))
        out += line + "\n"
    return out if vector.get("final_newline", True) else out[:-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sources", nargs="+")
    parser.add_argument("--proto", default=os.path.join(os.path.dirname(__file__), "..", "proto"))
    args = parser.parse_args()
    out = {}
    for path in args.sources:
        with open(path, encoding="utf-8") as f:
            source = json.load(f)
        vectors = source["vectors"]
        if source["kind"] == "process-context":
            out.update(process_contexts(vectors, args.proto))
        elif source["kind"] == "thread-record":
            out.update({v["id"]: {"record": record(v).hex()} for v in vectors})
        elif source["kind"] == "maps":
            out.update({v["id"]: {"maps": maps(v)} for v in vectors})
        else:
            sys.exit(f"{path}: unknown kind of source: {source['kind']!r}")
    json.dump(out, sys.stdout, indent=0)
    print()


if __name__ == "__main__":
    main()
