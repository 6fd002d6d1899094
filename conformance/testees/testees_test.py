#!/usr/bin/env python3
"""Are the programs of mutants.json what they say? Looks at them from outside,
with a reader and a protobuf walker of its own, and without ctxconf.

usage: testees_test.py SOURCE_DIR BIN_DIR
"""

import contextlib
import json
import os
import re
import resource
import signal
import struct
import subprocess
import sys
import threading
import time
import unittest

import jsonschema

SOURCE = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 2 else ""
BIN = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else ""

NAMES = ("[anon_shmem:OTEL_CTX]", "[anon:OTEL_CTX]", "/memfd:OTEL_CTX")
CANNOT_BE_SHOWN = 77
DEADLINE_S = 30
PAGE = os.sysconf("SC_PAGESIZE")


def load(*path):
    with open(os.path.join(SOURCE, "conformance", *path), encoding="utf-8") as file:
        return json.load(file)


with open(os.path.join(BIN, "mutants.json"), encoding="utf-8") as list_of_mutants:
    MUTANTS = json.load(list_of_mutants)
WRAPPED = {e["name"]: e for e in MUTANTS["mutants"] if e.get("command") != "elf"}
# Those with thread context have a test of their own.
THREADS = {name: e for name, e in WRAPPED.items() if e["program"].startswith("thread_")}
# Those that are about calls that fail and clocks: alone nothing happens to them.
FAULTED = {name: e for name, e in WRAPPED.items()
           if any(a.startswith(("--inject", "--hide-vdso")) or
                  (a.startswith("--faults=") and "RLIMIT" not in a) for a in e["wrap_args"])}
ENTRIES = {name: e for name, e in WRAPPED.items() if name not in THREADS and name not in FAULTED}
FILES = {e["name"]: e for e in MUTANTS["mutants"] if e.get("command") == "elf"}
REQUIREMENTS = {
    r["id"]: r for file in ("4719-2026-04-07.json", "4947-2026-07-17.json")
    for r in load("requirements", file)["requirements"]}
# These requirements are of the level syscalls.
IN_CALLS = {
    "pctx.header.timestamp-clock", "pctx.publish.memfd-retry", "pctx.publish.memfd-retry-flags",
    "pctx.publish.fallback-anon", "pctx.publish.fallback-anon-exhausted",
    "pctx.publish.name-failure-ignored", "pctx.publish.failure-madvise",
    "pctx.publish.failure-mmap", "pctx.publish.failure-ftruncate",
    "pctx.publish.failure-other-steps", "pctx.publish.failure-leaves-nothing-valid",
    "pctx.publish.no-name-at-all", "pctx.publish.survives-total-denial",
    "pctx.update.timestamp-later",
    "pctx.publish.memfd-name", "pctx.publish.memfd-flags", "pctx.publish.memfd-sized",
    "pctx.publish.memfd-first", "pctx.publish.name-always", "pctx.publish.name-arguments",
    "pctx.publish.name-whole-mapping", "pctx.publish.name-after-timestamp",
    "pctx.update.same-mapping", "pctx.update.name-always", "pctx.update.name-after-timestamp",
    "pctx.fork.dontfork-before-header"}
IN_STORES = {
    "pctx.publish.timestamp-last", "pctx.publish.payload-before-timestamp",
    "pctx.publish.timestamp-single-store", "pctx.update.prepare-before-zero",
    "pctx.update.zero-timestamp-first", "pctx.update.fields-while-zero",
    "pctx.update.timestamp-single-store", "pctx.update.zero-single-store",
    "pctx.update.signature-untouched", "pctx.update.old-payload-until-zero"}
# Changes of thread contexts: --watch threads.
IN_STEPS = {
    "tctx.attach.complete-before-visible", "tctx.attach.no-change-while-visible",
    "tctx.attach.slot-always-sound", "tctx.attach.valid-cleared-first",
    "tctx.attach.valid-set-last"}
JUDGED = {
    r["id"]: r for r in REQUIREMENTS.values()
    if r["role"] == "writer"
    and (r["observe"]["level"] in ("static", "snapshot")
         or r["id"] in IN_CALLS | IN_STORES | IN_STEPS)
    and {"attach", "wrap"} & set(r["observe"]["modes"])}
JUDGED_IN_FILES = {r["id"]: r for r in REQUIREMENTS.values() if "elf" in r["observe"]["modes"]}
# A file alone cannot break them: another module may hold the relocations, or the definition.
NEEDS_A_PROCESS = {"tctx.tls.access-model", "tctx.tls.symbol-defined"}
SHOWN_BY_FILES = set(JUDGED_IN_FILES) - NEEDS_A_PROCESS


# ---- a reader


class BadMessage(Exception):
    pass


def walk(data):
    """(field number, wire type, value) of one message."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            if at >= len(data) or shift > 63:
                raise BadMessage(f"varint at {at}")
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def take(count):
        nonlocal at
        if count > len(data) - at:
            raise BadMessage(f"{count} bytes wanted at {at}")
        at += count
        return data[at - count:at]

    fields = []
    while at < len(data):
        tag = varint()
        if tag >> 3 == 0:
            raise BadMessage(f"field number 0 before {at}")
        wire = tag & 7
        if wire == 0:
            value = varint()
        elif wire == 1:
            value = take(8)
        elif wire == 2:
            value = take(varint())
        elif wire == 5:
            value = take(4)
        else:
            raise BadMessage(f"wire type {wire} before {at}")
        fields.append((tag >> 3, wire, value))
    return fields


def messages(fields, number):
    out = []
    for found, wire, value in fields:
        if found == number:
            if wire != 2:
                raise BadMessage(f"field {number} has wire type {wire}")
            out.append(value)
    return out


def any_value(data):
    value = None
    for number, wire, content in walk(data):
        wanted = {1: 2, 2: 0, 3: 0, 4: 1, 5: 2, 6: 2, 7: 2, 8: 0}.get(number, wire)
        if wire != wanted:
            raise BadMessage(f"AnyValue field {number} has wire type {wire}")
        if number == 1:
            value = content.decode("utf-8")
        elif number == 2:
            value = bool(content)
        elif number == 3:
            value = content - (1 << 64) if content >> 63 else content
        elif number == 4:
            value = struct.unpack("<d", content)[0]
        elif number == 5:
            value = [any_value(v) for v in messages(walk(content), 1)]
        elif number == 6:
            value = [key_value(v) for v in messages(walk(content), 1)]
        elif number == 7:
            value = content
        elif number == 8:
            value = ("index", content)
    return value


def key_value(data):
    fields = walk(data)
    if any(number == 3 for number, _, _ in fields):
        return "index", data
    keys = messages(fields, 1)
    value = any_value(b"".join(messages(fields, 2)))
    return (keys[-1] if keys else b"").decode("utf-8"), value


class Message:
    def __init__(self, data):
        self.fields = walk(data)
        parts = b"".join(messages(self.fields, 1))
        self.resource = [key_value(pair) for pair in messages(walk(parts), 1)]
        self.attributes = [key_value(pair) for pair in messages(self.fields, 2)]
        # The numbers and contents of the fields of each entity reference.
        self.entities = [[(number, value) for number, _, value in walk(entity)]
                         for entity in messages(walk(parts), 3)]

    def lists(self):
        """Every list of pairs, nested ones too."""
        waiting, out = [self.resource, self.attributes], []
        while waiting:
            value = waiting.pop()
            if not isinstance(value, list):
                continue
            pairs = [item for item in value if isinstance(item, tuple)]
            if pairs:
                out.append(pairs)
            waiting += [item[1] if isinstance(item, tuple) else item for item in value]
        return out


def repeats(pairs):
    keys = [key for key, _ in pairs]
    return len(keys) != len(set(keys))


class Context:
    """The bytes of one maps entry, as another process sees them."""

    def __init__(self, entries, memory):
        first = entries[0]
        self.start, self.name, self.permissions = first["start"], first["name"], first["perms"]
        self.size = entries[-1]["end"] - self.start
        self.flags = [entry["flags"] for entry in entries]
        self.head = memory(self.start, 256)
        self.signature = self.head[:8]
        self.version, self.payload_size, self.timestamp, self.pointer = struct.unpack_from(
            "=IIQQ", self.head, 8)
        self.memory = memory

    @property
    def valid(self):
        return self.signature == b"OTEL_CTX" and self.version == 2 and self.timestamp != 0

    def payload(self):
        return self.memory(self.pointer, self.payload_size)

    def message(self):
        return Message(self.payload())

    def outcome(self):
        """What became of the payload: a Message, or what went wrong."""
        try:
            return self.message()
        except (BadMessage, UnicodeDecodeError, OSError, OverflowError) as error:
            return error


class Snapshot:
    def __init__(self, pid):
        self.pid = pid
        self.entries = []
        with open(f"/proc/{pid}/smaps", encoding="utf-8") as file:
            for line in file:
                head = re.match(r"([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ \S+ \d+ *(.*)", line)
                if head:
                    self.entries.append({
                        "start": int(head[1], 16), "end": int(head[2], 16), "perms": head[3],
                        "name": head[4], "flags": []})
                elif line.startswith("VmFlags:"):
                    self.entries[-1]["flags"] = line.split()[1:]
        self.links = []
        for number in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                self.links.append(os.readlink(f"/proc/{pid}/fd/{number}"))
        groups = []
        for entry in self.entries:
            if not entry["name"].startswith(NAMES):
                continue
            # One mapping in pieces: adjacent, and no signature at the later ones.
            if groups and groups[-1][-1]["end"] == entry["start"] and (
                    self.memory(entry["start"], 8) != b"OTEL_CTX"):
                groups[-1].append(entry)
            else:
                groups.append([entry])
        self.candidates = [Context(group, self.memory) for group in groups]
        self.valid = [context for context in self.candidates if context.valid]

    def memory(self, address, size):
        with open(f"/proc/{self.pid}/mem", "rb", buffering=0) as file:
            return os.pread(file.fileno(), size, address)

    def one(self):
        """The only candidate, valid or not."""
        if len(self.candidates) != 1:
            raise AssertionError(f"{len(self.candidates)} candidates")
        return self.candidates[0]

    def entry_of(self, address):
        return next((e for e in self.entries if e["start"] <= address < e["end"]), None)


# ---- running


class Skipped(Exception):
    pass


class Run:
    """A program with our pipe as standard input; it ends when we close that."""

    def __init__(self, entry, pause="1"):
        program = os.path.join(BIN, entry["program"])
        if not os.path.exists(program):
            raise Skipped(f"{entry['program']} was not built")
        self.entry = entry
        self.process = subprocess.Popen(
            [program, *entry["args"], "--pause", pause, "--hold", "eof"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.watchdog = threading.Timer(DEADLINE_S, self.process.kill)
        self.watchdog.start()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.finish()
        self.watchdog.cancel()

    def step(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def published(self):
        """(pid, header) of the next line on standard output."""
        line = self.process.stdout.readline()
        found = re.fullmatch(r"published pid=(\d+) header=0x([0-9a-f]+)\n", line)
        if found:
            return int(found[1]), int(found[2], 16)
        code, output = self.finish()
        if line == "" and code == CANNOT_BE_SHOWN:
            raise Skipped(output.strip())
        raise AssertionError(f"no publication: {line!r}, exit {code}, {output}")

    def finish(self):
        if not self.process.stdin.closed:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()
            self.output = self.process.stderr.read()
            self.process.wait()
            self.process.stdout.close()
            self.process.stderr.close()
        return self.process.returncode, self.output

    def until(self, condition):
        """The first snapshot of which `condition` holds."""
        end = time.monotonic() + DEADLINE_S
        while time.monotonic() < end and self.process.poll() is None:
            try:
                snapshot = Snapshot(self.process.pid)
                if condition(snapshot):
                    return snapshot
            except (OSError, struct.error, BadMessage):
                pass  # between two images, or changed while we read
            time.sleep(0.001)
        raise AssertionError("the awaited state did not come")


def final_snapshot(name):
    with Run(ENTRIES[name]) as run:
        pid, _ = run.published()
        return run_checks_while_alive(run, Snapshot(pid))


def run_checks_while_alive(run, snapshot):
    for context in snapshot.candidates:
        context.final = context.outcome()
    snapshot.exit_code, snapshot.errors = run.finish()
    return snapshot


def is_message(context):
    return isinstance(context.final, Message)


def failed_with(kind):
    return lambda s: isinstance(s.one().final, kind)


def of_message(condition):
    return lambda s: is_message(s.one()) and condition(s.one().final)


# What another process sees of each mutant that shows at rest. None of these
# holds of good_default.
SEEN = {
    "bad_header_signature": lambda s: s.one().signature == b"OTEL-CTX",
    "bad_header_version": lambda s: s.one().version == 0 and is_message(s.one()),
    "bad_header_version_second": lambda s: s.one().version == 0 and is_message(s.one()),
    "bad_header_version_development": lambda s: s.one().version == 1 and is_message(s.one()),
    "bad_header_payload_size": failed_with(BadMessage),
    "bad_header_payload_size_short": failed_with(BadMessage),
    "bad_header_layout": lambda s: (
        s.one().payload_size >= 1 << 30
        and struct.unpack_from("=QI", s.one().head, 12)[0] <= time.clock_gettime_ns(
            time.CLOCK_BOOTTIME)
        and 0 < struct.unpack_from("=I", s.one().head, 20)[0] <= 65536),
    "bad_header_payload_pointer": lambda s: s.one().pointer == 32,
    "bad_header_at_mapping_start": lambda s: s.one().head[64:72] == b"OTEL_CTX",
    "bad_header_native_byte_order": lambda s: s.one().version == 0x02000000,
    "bad_header_wide_fields_on_32_bit": lambda s: (
        s.one().pointer & 0xFFFFFFFF == s.one().start + 28),
    "bad_header_timestamp_nanoseconds": lambda s: s.one().valid and (
        s.one().timestamp < time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 500),
    "bad_header_timestamp_nonzero_at_rest": lambda s: (
        s.one().signature == b"OTEL_CTX" and s.one().timestamp == 0),
    "bad_payload_process_context_message": failed_with(BadMessage),
    "bad_payload_field_numbers": failed_with(BadMessage),
    "bad_payload_resource_keys_unique": of_message(lambda m: repeats(m.resource)),
    "bad_payload_attribute_keys_unique": of_message(
        lambda m: repeats(m.attributes) and not repeats(m.resource)),
    "bad_payload_nested_keys_unique": of_message(
        lambda m: any(repeats(pairs) for pairs in m.lists())
        and not repeats(m.resource) and not repeats(m.attributes)),
    "bad_payload_utf8": failed_with(UnicodeDecodeError),
    "bad_payload_utf8_large": failed_with(UnicodeDecodeError),
    "bad_payload_entity_keys_exist": of_message(
        lambda m: any((3, b"host.id") in e for e in m.entities)
        and "host.id" not in dict(m.resource)),
    "bad_payload_entity_keys_exist_description": of_message(
        lambda m: any((4, b"host.id") in e for e in m.entities)
        and "host.id" not in dict(m.resource)),
    "bad_payload_entity_type": of_message(
        lambda m: any(2 not in dict(e) for e in m.entities)),
    "bad_payload_entity_id_keys": of_message(
        lambda m: any(3 not in dict(e) for e in m.entities)),
    "bad_payload_utf8_surrogates": failed_with(UnicodeDecodeError),
    "bad_payload_no_dictionary_references": of_message(lambda m: "index" in dict(m.resource)),
    "bad_payload_semantic_conventions": of_message(lambda m: "serviceName" in dict(m.resource)),
    "bad_payload_resource_matches_sdk": of_message(
        lambda m: dict(m.resource)["service.version"] == "xxx"),
    "bad_payload_readable": lambda s: (
        isinstance(s.one().final, OSError) and s.entry_of(s.one().pointer) is not None),
    "bad_payload_readable_truncated_file": lambda s: (
        isinstance(s.one().final, OSError)
        and s.entry_of(s.one().pointer)["perms"].startswith("r")),
    "bad_publish_mapping_private": lambda s: s.one().permissions == "rw-s",
    "bad_publish_mapping_protection": lambda s: s.one().permissions == "rwxp",
    "bad_publish_memfd_closed": lambda s: any("OTEL_CTX" in link for link in s.links),
    "bad_publish_discoverable": lambda s: not s.candidates and any(
        re.search("[:]otel\\b", entry["name"]) for entry in s.entries),
    "bad_publish_discoverable_second": lambda s: not s.candidates and any(
        re.search("[:]otel\\b", entry["name"]) for entry in s.entries),
    "bad_publish_name_always_second": lambda s: not s.valid,
    "bad_publish_fields_nonzero": lambda s: (
        s.one().valid and s.one().pointer == 0 and s.one().payload_size == 0),
    "bad_publish_singleton": lambda s: len(s.valid) == 2,
    "bad_publish_footprint": lambda s: s.one().size == 1 << 30,
    "bad_fork_dontfork": lambda s: "dc" not in s.one().flags[0],
    "bad_fork_dontfork_partial": lambda s: ["dc" in flags for flags in s.one().flags] == [
        False, True],
}
# These show only in time, or under a limit, and have a test each below.
SEEN_OTHERWISE = {
    "bad_payload_stays_alive", "bad_update_no_silent_change", "bad_update_timestamp_distinct",
    "bad_publish_survives_file_size_limit", "bad_publish_memfd_name", "bad_publish_memfd_sized",
    "bad_publish_memfd_first"}

# Only their system calls show that these are broken; they leave a legal context.
SEEN_IN_CALLS = {
    "bad_header_version_first", "bad_header_version_until_update", "bad_header_signature_middle",
    "bad_header_version_clone_vfork",
    "bad_publish_memfd_flags", "bad_publish_name_always", "bad_publish_name_arguments",
    "bad_publish_mapping_protection_created",
    "bad_publish_name_arguments_later",
    "bad_publish_name_whole_mapping", "bad_publish_name_after_timestamp",
    "bad_update_same_mapping", "bad_update_name_always", "bad_update_name_always_in_our_memory",
    "bad_update_name_after_timestamp", "bad_fork_dontfork_before_header"}
# ... and these in the order of their stores.
SEEN_IN_STORES = {
    "bad_publish_timestamp_last", "bad_publish_timestamp_last_memcpy",
    "bad_publish_payload_before_timestamp", "bad_publish_payload_before_timestamp_large",
    "bad_publish_timestamp_single_store",
    "bad_update_prepare_before_zero", "bad_update_zero_timestamp_first",
    "bad_update_fields_while_zero", "bad_update_timestamp_single_store",
    "bad_update_zero_single_store", "bad_update_signature_untouched",
    "bad_update_old_payload_until_zero", "bad_update_old_payload_until_zero_unmapped"}

# A variant that holds no context at the end.
WITHOUT_CONTEXT = {
    "good_publish_nothing", "good_launcher", "good_withdrawn_unmap", "good_withdrawn_zero_unmap",
    "good_withdrawn_zero", "good_ctypes_writer_drop", "good_withdrawn_name_first",
    "good_withdrawn_unnamed", "good_withdrawn_for_other_use", "good_named_long_before",
    "good_copy_under_another_name", "good_named_in_vain_second"}

# They leave memory that no reader can find, which is a warning of requirements that are errors otherwise.
NAMELESS = {"bad_failure_ftruncate_nameless", "bad_failure_mmap_nameless"}


class Table(unittest.TestCase):
    def test_it_keeps_to_its_schema(self):
        schema = load("testees", "mutants.schema.json")
        jsonschema.Draft202012Validator.check_schema(schema)
        jsonschema.validate(MUTANTS, schema, jsonschema.Draft202012Validator)

    def test_names_are_unique_and_programs_declared(self):
        self.assertEqual(len(WRAPPED) + len(FILES), len(MUTANTS["mutants"]))
        self.assertEqual({e["program"] for e in MUTANTS["mutants"]}, set(MUTANTS["programs"]))

    def test_requirements_exist_and_are_judged_at_this_level(self):
        for name, entry in WRAPPED.items():
            for requirement in [*entry["requirements"], *entry["expect"]]:
                self.assertIn(requirement, JUDGED, name)
            if entry["kind"] == "mutant":
                expected = {*entry["expect"], *entry.get("host_may_add", {})}
                self.assertLessEqual(expected, set(entry["requirements"]), name)

    def test_expected_outcomes_are_those_of_the_severity(self):
        words = {"error": "fail", "warning": "warn", "info": "info"}
        for name, entry in WRAPPED.items():
            if entry["kind"] == "mutant":
                expected = entry["expect"] | entry.get("host_may_add", {})
                for requirement, outcome in expected.items():
                    severity = "warning" if name in NAMELESS else JUDGED[requirement]["severity"]
                    self.assertEqual(outcome, words[severity], f"{name} {requirement}")

    def test_every_requirement_has_a_mutant(self):
        broken = {requirement for e in WRAPPED.values() if e["kind"] == "mutant" for requirement in e["expect"]}
        self.assertEqual(broken - SHOWN_BY_FILES, set(JUDGED) - SHOWN_BY_FILES)

    def test_every_variant_is_shown_or_excused_once(self):
        judged = set(JUDGED) - SHOWN_BY_FILES
        texts = {(requirement, text) for requirement in judged for text in REQUIREMENTS[requirement]["variants"]}
        # A variant about a file may need a process as well.
        known = {(requirement, text) for requirement in JUDGED for text in REQUIREMENTS[requirement]["variants"]}
        shown = set()
        for name, entry in WRAPPED.items():
            for text in entry.get("variants", []):
                variants = {(requirement, text) for requirement in entry["requirements"]} & known
                self.assertTrue(variants, f"{name}: no requirement of it has the variant {text!r}")
                shown |= variants & texts
        not_here = [e for e in MUTANTS["not_here"] if e["requirement"] in judged]
        excused = {(e["requirement"], e["variant"]) for e in not_here}
        self.assertEqual(len(excused), len(not_here))
        self.assertFalse(shown & excused)
        self.assertEqual(shown | excused, texts)

    def test_the_program_and_the_table_know_the_same_cases(self):
        for program, also in (("process_writer", "process_writer_32"), ("thread_writer", ""),
                              ("thread_loader", ""), ("thread_go", "")):
            out = subprocess.run([os.path.join(BIN, program), "--list"], check=True,
                                 capture_output=True, text=True, timeout=DEADLINE_S).stdout
            listed = {tuple(line.split()[:2]) for line in out.splitlines()}
            used = {(e["args"][0][2:], e["args"][1]) for e in WRAPPED.values()
                    if e["program"] in (program, also)}
            self.assertEqual(listed, used, program)


class Faulted(unittest.TestCase):
    def test_each_variant_is_well_when_nothing_fails(self):
        for case in sorted({e["args"][1] for e in FAULTED.values() if e["kind"] == "variant"}):
            with self.subTest(case):
                done = subprocess.run(
                    [os.path.join(BIN, "process_writer"), "--good", case, "--hold", "0", "--pause", "0"],
                    capture_output=True, text=True, timeout=DEADLINE_S, check=False)
                self.assertEqual(done.returncode, 0, done.stderr)


class Variants(unittest.TestCase):
    def check_context(self, snapshot, header):
        self.assertEqual(len(snapshot.valid), 1)
        context = snapshot.valid[0]
        self.assertEqual(context.start, header)
        self.assertRegex(context.permissions, "^r[w-][x-]p$")
        header_page_alone = snapshot.name == "good_dontfork_header_page"
        for flags in context.flags[:1] if header_page_alone else context.flags:
            self.assertIn("dc", flags)
        self.assertFalse([link for link in snapshot.links if "OTEL_CTX" in link])
        if snapshot.name == "good_sign_extended":
            context.pointer &= 0xFFFFFFFF
        message = context.message()
        for pairs in message.lists():
            self.assertFalse(repeats(pairs), pairs)
        return context, message

    def test_each_is_legal(self):
        skipped = []
        for name, entry in ENTRIES.items():
            if entry["kind"] != "variant" or name in WITHOUT_CONTEXT:
                continue
            with self.subTest(name):
                try:
                    with Run(entry) as run:
                        pid, header = run.published()
                        # These withdraw it and publish again.
                        again = name.startswith("good_withdrawn_")
                        snapshot = run.until(lambda s: s.valid) if again else Snapshot(pid)
                        snapshot.name = name
                        self.check_context(snapshot, header)
                        code, errors = run.finish()
                        self.assertEqual((code, errors), (0, ""))
                except Skipped as why:
                    self.assertTrue(entry.get("may_skip"), f"{name}: {why}")
                    skipped.append(f"{name}: {why}")
        for line in skipped:
            print("skipped", line, file=sys.stderr)

    def context(self, name):
        with Run(ENTRIES[name]) as run:
            pid, _ = run.published()
            return run_checks_while_alive(run, Snapshot(pid))

    def test_attributes_arrive(self):
        asked = 0
        for name, entry in ENTRIES.items():
            wanted = [option.split("=", 2)[1:] for option in entry["wrap_args"]
                      if option.startswith("--expect-resource=")]
            if not wanted or entry["kind"] != "variant":
                continue
            found = dict(self.context(name).one().final.resource)
            for key, value in wanted:
                asked += 1
                text = json.dumps(found[key]) if not isinstance(found[key], str) else found[key]
                self.assertEqual(text, value, f"{name} {key}")
        self.assertGreater(asked, 5)

    def test_the_payload_is_where_it_should_be(self):
        inline = self.context("good_payload_inline").one()
        self.assertEqual(inline.pointer, inline.start + 32)
        gap = self.context("good_payload_gap").one()
        self.assertEqual(gap.pointer, gap.start + 1024)
        self.assertEqual(
            self.snapshot_entry("good_payload_heap", 0)["name"], "[heap]")
        self.assertIn("process_writer", self.snapshot_entry("good_payload_rodata", 0)["name"])
        first = self.snapshot_entry("good_payload_crosses_mappings", 0)
        last = self.snapshot_entry("good_payload_crosses_mappings", -1)
        self.assertNotEqual(first["name"], last["name"])
        self.assertEqual(first["end"] & (PAGE - 1), 0)
        self.assertEqual(self.snapshot_entry("good_payload_readonly", 0)["perms"], "r--p")

    def snapshot_entry(self, name, at):
        snapshot = self.context(name)
        context = snapshot.one()
        return snapshot.entry_of(context.pointer + (at % context.payload_size))

    def test_the_kernel_splits_mappings(self):
        self.assertEqual(len(self.context("good_split_by_madvise").one().flags), 2)
        self.assertEqual(len(self.context("good_split_by_mprotect").one().flags), 2)
        self.assertEqual(self.context("good_32_bytes").one().size, PAGE)

    def test_contexts_can_be_withdrawn(self):
        for name in sorted(WITHOUT_CONTEXT - {
                "good_publish_nothing", "good_launcher", "good_named_long_before"}):
            with self.subTest(name), Run(ENTRIES[name]) as run:
                run.published()
                run.until(lambda s: not s.valid)
                self.assertEqual(run.finish(), (0, ""))

    def test_timestamps_move_on(self):
        values = timestamps("good_updates")
        self.assertEqual(values, sorted(set(values)))
        first = timestamps("good_timestamp_plus_one")
        self.assertEqual(first, list(range(first[0], first[0] + 4)))

    def test_exec_leaves_none(self):
        with Run(ENTRIES["good_launcher"]) as run:
            run.published()
            snapshot = run.until(lambda s: not s.candidates)
            self.assertNotIn("process_writer", os.readlink(f"/proc/{snapshot.pid}/exe"))
            self.assertEqual(run.finish(), (0, ""))

    def test_nothing_to_publish(self):
        with Run(ENTRIES["good_publish_nothing"]) as run:
            self.assertEqual(run.finish(), (0, ""))

    def test_what_is_named_long_before_is_not_valid(self):
        with Run(ENTRIES["good_named_long_before"]) as run:
            snapshot = run.until(lambda s: s.candidates and any(s.candidates[0].head[:8]))
            self.assertEqual(snapshot.valid, [])
            self.assertEqual(snapshot.candidates[0].head[16:24], bytes(8))
            self.assertEqual(run.finish(), (0, ""))

    def test_the_slow_ones_show_their_zero(self):
        for name in ("good_slow_first_publish", "good_named_early"):
            with self.subTest(name), Run(ENTRIES[name], pause="byte") as run:
                before = run.until(lambda s: s.candidates)
                self.assertEqual(before.one().head[:32], bytes(32))
                run.step()
                run.published()
                self.assertEqual(run.finish(), (0, ""))

    def test_a_child_has_no_context_of_its_parent(self):
        with Run(ENTRIES["good_fork_idle_child"]) as run:
            pid, _ = run.published()
            with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
                (child,) = map(int, file.read().split())
            self.assertEqual(Snapshot(child).candidates, [])

    def test_a_child_publishes_for_itself(self):
        with Run(ENTRIES["good_fork_child_publishes"]) as run:
            lines = [run.published(), run.published()]
            self.assertEqual(len({pid for pid, _ in lines}), 2)
            found = {}
            for pid, header in lines:
                snapshot = Snapshot(pid)
                snapshot.name = ""
                _, message = self.check_context(snapshot, header)
                found[pid] = "ctxconf.child" in dict(message.resource)
            self.assertEqual(found, {pid: pid != run.process.pid for pid in found})

    def test_the_default_survives_a_file_size_limit(self):
        for program in ("process_writer", "ctypes_writer.py"):
            arguments = ["--good", "default"] if program == "process_writer" else []
            code = run_without_files([os.path.join(BIN, program), *arguments, "--hold", "1"])
            self.assertGreaterEqual(code, 0, program)


def timestamps(name):
    """Of the first publication and the three updates after it."""
    values = []

    def is_update(number):
        return lambda s: s.valid and (
            dict(s.one().message().resource).get("ctxconf.update", 0) == number)

    with Run(ENTRIES[name], pause="byte") as run:
        for number in range(4):
            if number > 0:
                run.step()
            values.append(run.until(is_update(number)).one().timestamp)
        run.published()
    return values


def run_without_files(command):
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)

    return subprocess.run(command, preexec_fn=limit, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL, timeout=DEADLINE_S, check=False).returncode


class MutantsFromOutside(unittest.TestCase):
    def test_all_are_looked_at(self):
        # Where --expect-resource is what differs, the program is a legal one.
        names = {name for name, e in ENTRIES.items()
                 if e["kind"] == "mutant" and e["args"][0] == "--bad"}
        groups = (set(SEEN), SEEN_OTHERWISE, SEEN_IN_CALLS, SEEN_IN_STORES)
        self.assertEqual(names, set().union(*groups),
                         "add a new broken program to SEEN, SEEN_OTHERWISE, SEEN_IN_CALLS or SEEN_IN_STORES in "
                         f"{os.path.basename(__file__)}: what another process sees of it")
        self.assertEqual(len(names), sum(map(len, groups)))

    def test_each_is_broken_as_it_says(self):
        good = final_snapshot("good_default")
        self.assertTrue(is_message(good.one()))
        for name, broken in SEEN.items():
            with self.subTest(name):
                self.assertFalse(broken(good), "holds of a legal program too")
                try:
                    snapshot = final_snapshot(name)
                except Skipped as why:
                    self.assertTrue(ENTRIES[name].get("may_skip"), str(why))
                    print("skipped", name, why, file=sys.stderr)
                    continue
                self.assertTrue(broken(snapshot))
                self.assertEqual((snapshot.exit_code, snapshot.errors), (0, ""))

    def test_those_with_wrong_calls_or_stores_leave_a_legal_context(self):
        for name in sorted(SEEN_IN_CALLS | SEEN_IN_STORES):
            with self.subTest(name):
                snapshot = final_snapshot(name)
                self.assertEqual(len(snapshot.valid), 1)
                self.assertTrue(is_message(snapshot.valid[0]))
                self.assertTrue(all("dc" in flags for flags in snapshot.valid[0].flags))
                self.assertEqual((snapshot.exit_code, snapshot.errors), (0, ""))

    def header_entry(self, name):
        """The maps name of what is announced as the header, and its first bytes or an error."""
        with Run(ENTRIES[name]) as run:
            pid, header = run.published()
            with open(f"/proc/{pid}/maps", encoding="utf-8") as file:
                found = re.search(rf"^{header:x}-\S+ \S+ \S+ \S+ \d+ *(.*)$", file.read(), re.M)
            with open(f"/proc/{pid}/mem", "rb", buffering=0) as file:
                try:
                    head = os.pread(file.fileno(), 8, header)
                except OSError as error:
                    head = error
            self.assertEqual(run.finish(), (0, ""))
        return found[1], head

    def test_memory_with_other_names(self):
        name, head = self.header_entry("bad_publish_memfd_name")
        self.assertIn(name, ("/memfd:otel_ctx (deleted)", "[anon_shmem:OTEL_CTX]"))
        self.assertEqual(head, b"OTEL_CTX")
        name, head = self.header_entry("bad_publish_memfd_first")
        self.assertIn(name, ("", "[anon:OTEL_CTX]"))
        self.assertEqual(head, b"OTEL_CTX")

    def test_an_empty_file_has_no_memory(self):
        name, head = self.header_entry("bad_publish_memfd_sized")
        self.assertIn("OTEL_CTX", name)
        self.assertIsInstance(head, OSError)

    def before_and_after(self, name):
        with Run(ENTRIES[name], pause="byte") as run:
            before = run.until(lambda s: s.valid).one()
            before.bytes = before.payload()
            run.step()
            pid, _ = run.published()
            after = Snapshot(pid).one()
            after.bytes = after.payload()
        self.assertEqual(before.head[:32], after.head[:32])
        Message(before.bytes)
        return before, after

    def test_a_payload_on_the_stack_is_overwritten(self):
        _, after = self.before_and_after("bad_payload_stays_alive")
        self.assertRaises(BadMessage, Message, after.bytes)

    def test_a_value_is_patched_in_place(self):
        before, after = self.before_and_after("bad_update_no_silent_change")
        self.assertEqual(dict(Message(before.bytes).resource)["service.version"], "1.0.0")
        self.assertEqual(dict(Message(after.bytes).resource)["service.version"], "2.0.0")

    def test_updates_share_a_cached_timestamp(self):
        values = timestamps("bad_update_timestamp_distinct")
        self.assertEqual(values, values[:1] * 4)

    def test_a_file_size_limit_kills(self):
        entry = ENTRIES["bad_publish_survives_file_size_limit"]
        code = run_without_files(
            [os.path.join(BIN, entry["program"]), *entry["args"], "--hold", "1"])
        self.assertEqual(code, -signal.SIGXFSZ)


# ---- ELF files


class ElfFile:
    """What readelf says of the variable in one file."""

    def __init__(self, name):
        def readelf(*options):
            return subprocess.run(
                ["readelf", "-W", *options, os.path.join(BIN, name)], check=True, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=DEADLINE_S).stdout

        def symbols(text):
            pattern = r"^ *\d+: (\w+) +(\d+) (\w+) +(\w+) +(\w+) +(\w+) otel_thread_ctx_v1(@.*)?$"
            return [(int(f[0], 16), int(f[1]), *f[2:6]) for f in re.findall(pattern, text, re.M)]

        header, segments, dynamic = readelf("-h"), readelf("-l"), readelf("-d")
        self.type = re.search(r"Type: +(\w+)", header)[1]
        self.sections = int(re.search(r"Number of section headers: +(\d+)", header)[1])
        self.is_program = "INTERP" in segments or "PIE" in dynamic or self.type == "EXEC"
        self.has_dynamic = "  DYNAMIC " in segments
        # Found through the hash tables, so without section headers too.
        self.dynamic = symbols(readelf("--use-dynamic", "--syms"))
        self.static = symbols(readelf("--syms").partition("'.symtab'")[2])
        self.hash_tables = set(re.findall(r"\((HASH|GNU_HASH)\)", dynamic))
        relocations = re.findall(r"^[0-9a-f]+ +\w+ R_X86_64_(\w+) *(.*)$", readelf("-r"), re.M)
        self.named = {kind for kind, rest in relocations if "otel_thread_ctx_v1" in rest}
        self.nameless = {
            (kind, int(rest, 16)) for kind, rest in relocations
            if kind in ("DTPMOD64", "TLSDESC", "TPOFF64") and re.fullmatch(r"[0-9a-f]+", rest)}
        self.versions = ".gnu.version_d" in readelf("-S")

    @property
    def definition(self):
        """(value, size, type, binding, visibility, section), if readers can use it."""
        found = [s for s in self.dynamic if s[2] == "TLS" and s[5] != "UND"]
        return found[0] if found else None


def is_bound_inside(file):
    value = file.definition[0]
    return ("TLSDESC", value) in file.nameless or (
        "DTPMOD64" in file.named and "DTPOFF64" not in file.named)


# What makes the file of each entry what its name says.
FILE_IS = {
    "bad_tls_dynsym_exported": lambda f: not f.is_program and not f.dynamic and f.static,
    "bad_tls_symbol_type": lambda f: [s[2] for s in f.dynamic] == ["OBJECT"],
    "good_tls_asks_only": lambda f: [s[3:6:2] for s in f.dynamic] == [("WEAK", "UND")],
    "good_tls_unused_hidden_copy": lambda f: (
        not f.is_program and not f.dynamic and f.static and
        ("TLSDESC", f.static[0][0]) not in f.nameless),
    "good_tls_hidden_copy_in_program": lambda f: (
        f.is_program and f.has_dynamic and not f.dynamic and f.static),
    "bad_tls_static_link_exported": lambda f: (
        f.is_program and f.has_dynamic and not f.dynamic and f.static),
    "bad_tls_fully_static": lambda f: f.is_program and not f.has_dynamic and f.static,
    "bad_tls_not_local_dynamic": lambda f: (
        f.definition[0] != 0 and not f.named and f.nameless == {("DTPMOD64", 0)}),
    "bad_tls_prefers_tlsdesc": lambda f: f.named == {"DTPMOD64", "DTPOFF64"},
    "bad_tls_is_pointer": lambda f: f.definition[1] == 640 and f.named == {"TLSDESC"},
    "good_tls_tlsdesc": lambda f: f.named == {"TLSDESC"} and f.definition[1] == 8,
    "good_tls_module_and_offset": lambda f: (
        f.named == {"DTPMOD64", "DTPOFF64"} and ("DTPMOD64", 0) in f.nameless),
    "good_tls_initial_exec": lambda f: f.named == {"TPOFF64"},
    "good_tls_pie": lambda f: f.definition and f.is_program and f.type == "DYN",
    "good_tls_no_pie": lambda f: f.definition and f.type == "EXEC" and f.has_dynamic,
    "good_tls_static_pie": lambda f: f.definition and f.is_program and not f.named,
    "good_tls_foreign_relocations": lambda f: (
        f.is_program and not f.definition and [s[5] for s in f.dynamic] == ["UND"] and f.named),
    "good_tls_relocations_unknown": lambda f: f.definition and not f.named,
    "good_tls_symbolic": is_bound_inside,
    "good_tls_symbolic_general_dynamic": is_bound_inside,
    "good_tls_protected": lambda f: f.definition[4] == "PROTECTED",
    "good_tls_protected_general_dynamic": lambda f: (
        f.definition[4] == "PROTECTED" and is_bound_inside(f)),
    "good_tls_sysv_hash": lambda f: f.definition and f.hash_tables == {"HASH"},
    "good_tls_no_sections": lambda f: f.definition and f.sections == 0,
    "good_tls_versioned": lambda f: f.definition and f.versions,
    "good_tls_stripped": lambda f: f.definition and not f.static,
    "good_tls_no_size": lambda f: f.definition[1] == 0,
}


class ElfFiles(unittest.TestCase):
    def test_each_is_what_its_name_says(self):
        self.assertEqual(set(FILE_IS), set(FILES))
        for name, holds in FILE_IS.items():
            with self.subTest(name):
                entry = FILES[name]
                if entry.get("may_skip") and not os.path.exists(os.path.join(BIN, entry["program"])):
                    print("skipped", name, entry["comment"], file=sys.stderr)
                    continue
                self.assertTrue(holds(ElfFile(entry["program"])))

    def test_the_programs_work(self):
        for program in {e["program"] for e in FILES.values() if not e["program"].endswith(".so")}:
            with self.subTest(program):
                subprocess.run([os.path.join(BIN, program)], check=True, timeout=DEADLINE_S)

    def test_requirements_are_about_files(self):
        words = {"error": "fail", "warning": "warn", "info": "info"}
        for name, entry in FILES.items():
            for requirement in [*entry["requirements"], *entry["expect"]]:
                self.assertIn(requirement, JUDGED_IN_FILES, name)
            for requirement, outcome in entry["expect"].items():
                if entry["kind"] == "mutant":
                    self.assertIn(requirement, entry["requirements"], name)
                    self.assertEqual(outcome, words[JUDGED_IN_FILES[requirement]["severity"]], name)

    def test_every_requirement_has_a_mutant(self):
        broken = {requirement for e in FILES.values() if e["kind"] == "mutant" for requirement in e["expect"]}
        self.assertEqual(broken, set(JUDGED_IN_FILES) - NEEDS_A_PROCESS)

    def test_every_variant_is_shown_or_excused_once(self):
        texts = {(r["id"], text) for r in JUDGED_IN_FILES.values() for text in r["variants"]}
        shown = set()
        for name, entry in FILES.items():
            for text in entry.get("variants", []):
                variants = {(requirement, text) for requirement in entry["requirements"]} & texts
                self.assertTrue(variants, f"{name}: no requirement of it has the variant {text!r}")
                shown |= variants
        # Some need a process that uses what the file has, or does not.
        for entry in MUTANTS["mutants"]:
            shown |= {(requirement, text) for requirement in entry["requirements"]
                      for text in entry.get("variants", [])} & texts
        excused = {(e["requirement"], e["variant"]) for e in MUTANTS["not_here"]
                   if e["requirement"] in JUDGED_IN_FILES}
        self.assertFalse(shown & excused)
        self.assertEqual(shown | excused, texts)


class Usage(unittest.TestCase):
    def test_mistakes_are_named(self):
        program = os.path.join(BIN, "process_writer")
        for arguments, text in (([], "--good or --bad"), (["--good", "x"], "no such case: x"),
                                (["--bad"], "a value is missing"), (["-x"], "unknown option: -x"),
                                (["--good", "default", "--hold", "1s"], "milliseconds: 1s")):
            done = subprocess.run([program, *arguments], capture_output=True, text=True,
                                  timeout=DEADLINE_S, check=False)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertIn(text, done.stderr)

    def test_quiet(self):
        for name in ("good_default", "good_ctypes_writer"):
            entry = ENTRIES[name]
            done = subprocess.run(
                [os.path.join(BIN, entry["program"]), *entry["args"], "--quiet", "--hold", "0"],
                capture_output=True, text=True, timeout=DEADLINE_S, check=False)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))


if __name__ == "__main__":
    if not SOURCE or not BIN:
        sys.exit(__doc__)
    unittest.main()
