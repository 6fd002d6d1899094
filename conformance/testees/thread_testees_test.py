#!/usr/bin/env python3
"""Are the programs with thread context what mutants.json says? Looks at their
records from outside, where they print that these are, and without ctxconf.

usage: thread_testees_test.py SOURCE_DIR BIN_DIR
"""

import os
import re
import struct
import sys
import time
import unittest

from testees_test import (
    CANNOT_BE_SHOWN, DEADLINE_S, THREADS, Run, Skipped, Snapshot)

SCHEMA, KEY_MAP = "threadlocal.schema_version", "threadlocal.attribute_key_map"
HEAD = 28
NO_TRACE, NO_SPAN = bytes(16), bytes(8)


class Record:
    """What one thread's slot points at."""

    def __init__(self, memory, slot):
        self.slot, self.memory = slot, memory
        (self.at,) = struct.unpack("=Q", memory(slot, 8))
        if self.at == 0:
            return
        head = memory(self.at, HEAD)
        self.trace, self.span = head[:16], head[16:24]
        self.valid, self.flags = head[24:26]
        (self.size,) = struct.unpack("=H", head[26:])

    def behind(self, size):
        return self.memory(self.at + HEAD, size)

    def area(self):
        return self.behind(self.size)

    def entries(self):
        return walk(self.area())


def walk(area):
    """(key, value) of each entry; None where the last one is cut."""
    entries, at = [], 0
    while at < len(area):
        if at + 2 > len(area) or at + 2 + area[at + 1] > len(area):
            return None
        entries.append((area[at], area[at + 2:at + 2 + area[at + 1]]))
        at += 2 + area[at + 1]
    return entries


class Program:
    """A program that waits, with all that it has attached."""

    def __init__(self, entry, pause="1"):
        self.run = Run(entry, pause)
        self.still, self.moving, self.printed, self.header = [], [], [], None
        while True:
            line = self.run.process.stdout.readline()
            thread = re.fullmatch(r"(still|moving) tid=(\d+) slot=0x([0-9a-f]+) .*\n", line)
            published = re.fullmatch(r"published pid=(\d+) header=0x([0-9a-f]+)\n", line)
            if thread:
                getattr(self, thread[1]).append(int(thread[3], 16))
            elif published:
                self.header = int(published[2], 16)
            elif line.startswith("context "):
                self.printed.append(line)
            elif line.startswith("ready "):
                break
            else:
                code, output = self.run.finish()
                if code == CANNOT_BE_SHOWN:
                    raise Skipped(output.strip())
                raise AssertionError(f"{line!r}, exit {code}, {output}")
        self.snapshot = Snapshot(self.run.process.pid)
        self.records = [self.record(slot) for slot in self.still]
        message = self.snapshot.one().message() if self.snapshot.candidates else None
        self.resource = dict(message.resource) if message else {}
        self.attributes = dict(message.attributes) if message else {}

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.run.__exit__(kind, error, trace)

    def record(self, slot):
        return Record(self.snapshot.memory, slot)

    def snapshot_of_child(self):
        pid = self.snapshot.pid
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            (child,) = map(int, file.read().split())
        return Snapshot(child)

    @property
    def told(self):
        """TRACEPARENT, empty where there is none."""
        with open(f"/proc/{self.snapshot.pid}/environ", "rb") as file:
            words = dict(word.partition(b"=")[::2] for word in file.read().split(b"\0"))
        return words.get(b"TRACEPARENT", b"").decode()

    @property
    def names(self):
        return self.attributes.get(KEY_MAP, [])

    def has(self, library):
        return any(entry["name"].endswith("/" + library) for entry in self.snapshot.entries)

    def any(self, condition):
        return any(condition(record) for record in self.records)

    def all(self, condition):
        return bool(self.records) and all(condition(record) for record in self.records)


def reads(program, wanted):
    """Do whole entries of known keys fill these bytes?"""
    entries = walk(wanted)
    return bool(entries) and all(key < len(program.names) for key, _ in entries)


def is_draft(record):
    count = record.behind(6)[5]
    return record.behind(5)[4] == 1 and 0 < count < 4 and record.valid > 1


def with_varints(record):
    area = record.area()
    at = area.find(b"\xc8\x01v")
    return at > 0 and walk(area) is None and area[at + 2:at + 202] == b"v" * 200


def is_padded(record):
    area, at = record.area(), 0
    while at < len(area):
        at += (2 + area[at + 1] + 1) // 2 * 2
    return at == len(area) and walk(area) is None


def is_elsewhere(program, record):
    (pointer,) = struct.unpack("=Q", record.behind(8))
    return reads(program, program.snapshot.memory(pointer, record.size))


def ends_outside(program, record):
    # /proc/PID/mem would show what PROT_NONE hides from others.
    entry = program.snapshot.entry_of(record.at + HEAD + record.size - 1)
    return entry is None or not entry["perms"].startswith("r")


def bad_text(record):
    try:
        for _, value in record.entries():
            value.decode()
    except UnicodeDecodeError:
        return True
    return False


# What another process sees of each mutant. None of these holds of good_tctx_default.
SEEN = {
    "bad_tctx_refdata_in_attributes": lambda p: SCHEMA in p.resource and KEY_MAP in p.resource,
    "bad_tctx_refdata_schema_version_present": lambda p: p.names and SCHEMA not in p.attributes,
    "bad_tctx_refdata_key_map_present": lambda p: (
        SCHEMA in p.attributes and KEY_MAP not in p.attributes and p.any(lambda r: r.size > 0)),
    "bad_tctx_refdata_schema_version_string": lambda p: p.attributes[SCHEMA] == 1,
    "bad_tctx_refdata_schema_version_value": lambda p: p.attributes[SCHEMA] == "tlsdesc",
    "bad_tctx_refdata_key_map_array": lambda p: isinstance(p.names[0], tuple),
    "bad_tctx_refdata_key_map_strings": lambda p: None in p.names,
    "bad_tctx_refdata_key_map_names_usable": lambda p: len(set(p.names)) < len(p.names),
    "bad_tctx_keymap_at_most_256": lambda p: len(p.names) == 300,
    "bad_tctx_altschema_go_value": lambda p: (
        p.attributes[SCHEMA] == "tlsdesc_v1_dev" and not p.records),
    "bad_tctx_altschema_go_no_key_map": lambda p: (
        p.attributes[SCHEMA] == "go_pprof_labels_v1" and len(p.names) == 2),
    "bad_tctx_tls_dynsym_exported": lambda p: p.has("slot_hidden.so"),
    "bad_tctx_tls_dynsym_exported_second_copy": lambda p: (
        p.has("slot_hidden.so") and p.has("slot_tlsdesc.so")),
    "bad_tctx_tls_symbol_type": lambda p: p.has("slot_ordinary.so"),
    "bad_tctx_tls_symbol_defined": lambda p: (
        p.has("slot_undefined.so") and not p.has("slot_only.so")),
    "bad_tctx_tls_static_link_exported": lambda p: p.has("thread_unexported"),
    "bad_tctx_tls_fully_static": lambda p: not p.has("libc.so.6"),
    "bad_tctx_tls_access_model": lambda p: p.has("slot_only.so"),
    "bad_tctx_tls_not_local_dynamic": lambda p: p.has("slot_local_dynamic.so"),
    "bad_tctx_tls_prefers_tlsdesc": lambda p: p.has("slot_general_dynamic.so"),
    "bad_tctx_tls_is_pointer": lambda p: p.has("slot_record.so"),
    "bad_tctx_tls_one_definition": lambda p: (
        p.has("slot_tlsdesc.so") and p.has("slot_initial_exec.so")),
    "bad_tctx_record_layout": lambda p: p.all(is_draft),
    "bad_tctx_record_layout_busy": lambda p: p.all(is_draft),
    "bad_tctx_record_byte_order": lambda p: p.all(
        lambda r: reads(p, r.behind((r.size >> 8) | (r.size & 255) << 8))),
    "bad_tctx_record_trace_id": lambda p: p.printed and p.all(
        lambda r: any(r.trace[::-1].hex() in line for line in p.printed)),
    "bad_tctx_record_trace_id_in_halves": lambda p: p.printed and p.all(
        lambda r: any((r.trace[7::-1] + r.trace[:7:-1]).hex() in line for line in p.printed)),
    "bad_tctx_record_trace_id_as_told": lambda p: p.all(
        lambda r: r.trace[::-1].hex() in p.told),
    "bad_tctx_record_span_id": lambda p: p.printed and p.all(
        lambda r: any(r.span[::-1].hex() in line for line in p.printed)),
    "bad_tctx_record_ids_both_or_neither": lambda p: p.any(
        lambda r: (r.trace == NO_TRACE) != (r.span == NO_SPAN)),
    "bad_tctx_record_valid_is_one": lambda p: p.all(lambda r: r.valid == 255),
    "bad_tctx_record_valid_reserved_values": lambda p: {r.valid for r in p.records} == {1, 2},
    "bad_tctx_record_trace_flags_without_ids": lambda p: p.any(
        lambda r: r.trace == NO_TRACE and r.span == NO_SPAN and r.flags != 0),
    "bad_tctx_record_attrs_data_size": lambda p: p.all(lambda r: 0 < r.size < 4),
    "bad_tctx_record_attrs_data_size_with_head": lambda p: p.all(
        lambda r: r.size > HEAD and reads(p, r.behind(r.size - HEAD))),
    "bad_tctx_record_aligned": lambda p: p.any(lambda r: r.at % 2 == 1 and reads(p, r.area())),
    "bad_tctx_record_contiguous": lambda p: p.all(lambda r: ends_outside(p, r)),
    "bad_tctx_record_contiguous_readable": lambda p: p.all(
        lambda r: not ends_outside(p, r) and r.entries() is None and is_elsewhere(p, r)),
    "bad_tctx_record_recommended_size": lambda p: p.any(
        lambda r: r.size > 1900 and reads(p, r.area())),
    "bad_tctx_attrs_entry_format": lambda p: p.any(with_varints),
    "bad_tctx_attrs_packed": lambda p: p.any(is_padded),
    "bad_tctx_attrs_ends_on_boundary": lambda p: p.any(
        lambda r: r.size == 612 and r.entries() is None),
    "bad_tctx_attrs_key_in_map": lambda p: p.any(
        lambda r: any(key == len(p.names) for key, _ in r.entries())),
    "bad_tctx_attrs_utf8": lambda p: p.any(bad_text),
}
# These show only in time.
SEEN_OTHERWISE = {"bad_tctx_keymap_never_removed", "bad_tctx_keymap_never_reordered",
                  "bad_tctx_refdata_schema_version_present_fork"}
# Only who stops the program between two instructions sees what is wrong with these.
SEEN_IN_STEPS = {
    "bad_tctx_attach_" + name for name in (
        "complete_before_visible", "no_change_while_visible", "valid_cleared_first",
        "valid_set_last", "slot_always_sound")}

# Records whose value of 255 bytes ends inside a character.
CUT = {"good_tctx_utf8_cut_at_the_limit"}


class Mutants(unittest.TestCase):
    def test_all_are_looked_at(self):
        # Where --expect-trace-id is what differs, the program is a legal one.
        def is_legal(entry):
            return any(option.startswith("--expect-") for option in entry["wrap_args"])

        names = {name for name, e in THREADS.items()
                 if e["kind"] == "mutant" and not is_legal(e)}
        self.assertEqual(names, set(SEEN) | SEEN_OTHERWISE | SEEN_IN_STEPS,
                         "add a new broken program to SEEN, SEEN_OTHERWISE or SEEN_IN_STEPS in "
                         f"{os.path.basename(__file__)}: what another process sees of it")
        self.assertFalse(set(SEEN) & (SEEN_OTHERWISE | SEEN_IN_STEPS))

    def test_each_is_broken_as_it_says(self):
        with Program(THREADS["good_tctx_default"]) as good:
            for name, broken in SEEN.items():
                with self.subTest(name):
                    self.assertFalse(broken(good), "holds of a legal program too")
                    try:
                        with Program(THREADS[name]) as program:
                            self.assertTrue(broken(program))
                            self.assertEqual(program.run.finish(), (0, ""))
                    except Skipped as why:
                        self.assertTrue(THREADS[name].get("may_skip"), str(why))
                        print("skipped", name, why, file=sys.stderr)

    def names_before_and_after(self, name):
        """Key maps of all publications, from the first on."""
        maps = []
        with Run(THREADS[name], pause="byte") as run:
            def changed(snapshot):
                if not snapshot.valid:
                    return False
                names = dict(snapshot.one().message().attributes).get(KEY_MAP, [])
                return not maps or names != maps[-1]

            for _ in range(2):
                snapshot = run.until(changed)
                maps.append(dict(snapshot.one().message().attributes)[KEY_MAP])
                run.step()
            self.assertEqual(run.finish(), (0, ""))
        return maps

    def test_a_key_vanishes(self):
        before, after = self.names_before_and_after("bad_tctx_keymap_never_removed")
        self.assertEqual(before[:-1], after)

    def test_keys_move(self):
        before, after = self.names_before_and_after("bad_tctx_keymap_never_reordered")
        self.assertLess(set(before), set(after))
        self.assertNotEqual(before, after[:len(before)])

    def test_keys_are_appended(self):
        before, after = self.names_before_and_after("good_tctx_growing_key_map")
        self.assertEqual(before, after[:-1])


class Variants(unittest.TestCase):
    def check_record(self, program, record, name):
        self.assertEqual(record.at % 2, 0)
        self.assertIn(record.valid, (0, 1))
        if record.valid == 0:
            return
        self.assertEqual(record.trace == NO_TRACE, record.span == NO_SPAN)
        if record.trace == NO_TRACE:
            self.assertEqual(record.flags, 0)
        self.assertLessEqual(HEAD + record.size, 640)
        entries = record.entries()
        self.assertIsNotNone(entries, "the last entry is cut")
        for key, value in entries:
            if name != "good_tctx_node_no_key_map":
                self.assertLess(key, len(program.names))
            if name in CUT and len(value) == 255:
                value = value[:254]
            value.decode()

    def check_reference_data(self, program, name):
        self.assertNotIn(SCHEMA, program.resource)
        self.assertNotIn(KEY_MAP, program.resource)
        # Node's schema describes its own layout: the records are those of a native component.
        if "_node_" in name:
            self.assertIn(program.attributes[SCHEMA], ("nodejs_v1_dev", "nodejs_v1"))
        elif any(record.valid for record in program.records):
            self.assertIn(program.attributes[SCHEMA],
                          ("tlsdesc_v1_dev", "tls_v1", "go_pprof_labels_v1"))
        self.assertLessEqual(len(program.names), 256)
        self.assertEqual(len(set(program.names)), len(program.names))
        for text in program.names:
            self.assertTrue(text and isinstance(text, str))

    def test_each_is_legal(self):
        for name, entry in THREADS.items():
            if entry["kind"] != "variant":
                continue
            with self.subTest(name):
                try:
                    with Program(entry) as program:
                        self.check_reference_data(program, name)
                        for record in program.records:
                            self.check_record(program, record, name)
                        self.assertEqual(program.run.finish(), (0, ""))
                except Skipped as why:
                    self.assertTrue(entry.get("may_skip"), str(why))
                    print("skipped", name, why, file=sys.stderr)

    def test_records_change(self):
        for name in ("toggled", "switched", "switched_through_null", "nested", "appended"):
            with self.subTest(name), Program(THREADS["good_tctx_" + name]) as program:
                (slot,) = program.moving
                seen = set()
                end = time.monotonic() + DEADLINE_S
                while len(seen) < 2 and time.monotonic() < end:
                    record = program.record(slot)
                    seen.add((record.at, record.at and (record.span, record.size)))
                self.assertGreater(len(seen), 1)

    def test_threads_come_and_go(self):
        for name in ("thread_churn", "handed_over"):
            with self.subTest(name), Program(THREADS["good_tctx_" + name]) as program:
                seen = set()
                end = time.monotonic() + DEADLINE_S
                while len(seen) < 6 and time.monotonic() < end:
                    seen |= set(os.listdir(f"/proc/{program.snapshot.pid}/task"))
                self.assertGreaterEqual(len(seen), 6)

    def test_one_thread_sleeps_and_one_does_not(self):
        with Program(THREADS["good_tctx_busy"]) as program:
            self.assertEqual(len(program.records), 3)
            tasks = f"/proc/{program.snapshot.pid}/task"

            def states():
                out = []
                for tid in os.listdir(tasks):
                    with open(f"{tasks}/{tid}/stat", encoding="ascii") as file:
                        out.append(file.read().rpartition(")")[2].split()[0])
                return sorted(out)

            end = time.monotonic() + DEADLINE_S
            while states() != ["R", "S", "S"] and time.monotonic() < end:
                time.sleep(0.001)
            self.assertEqual(states().count("R"), 1)

    def test_the_library_is_the_one_that_is_named(self):
        libraries = {
            "tlsdesc": "slot_tlsdesc.so", "general_dynamic": "slot_general_dynamic.so",
            "initial_exec": "slot_initial_exec.so", "symbolic": "slot_symbolic.so",
            "symbolic_general_dynamic": "slot_symbolic_general_dynamic.so",
            "used_elsewhere": "slot_only.so", "late_library": "slot_tlsdesc.so"}
        for name, library in libraries.items():
            with self.subTest(name), Program(THREADS["good_tctx_" + name]) as program:
                self.assertTrue(program.has(library))
                self.assertTrue(program.records)

    def test_a_child_has_the_record_of_its_parent(self):
        with Program(THREADS["good_tctx_fork_inherits"]) as program:
            snapshot = program.snapshot_of_child()
            self.assertEqual(snapshot.candidates, [])
            self.assertEqual(Record(snapshot.memory, program.still[0]).at, program.records[0].at)

    def test_a_child_has_a_record_where_its_parent_has_none(self):
        with Program(THREADS["bad_tctx_refdata_schema_version_present_fork"]) as program:
            snapshot = program.snapshot_of_child()
            self.assertEqual(program.snapshot.candidates + snapshot.candidates, [])
            self.assertEqual(program.records[0].at, 0)
            self.assertEqual(Record(snapshot.memory, program.still[0]).valid, 1)


class Reader(unittest.TestCase):
    def test_walks(self):
        self.assertEqual(walk(b"\0\1a\2\0"), [(0, b"a"), (2, b"")])
        self.assertEqual(walk(b""), [])
        self.assertIsNone(walk(b"\0\2a"))
        self.assertIsNone(walk(b"\0\1a\2"))


if __name__ == "__main__":
    unittest.main()
