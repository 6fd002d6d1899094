#!/usr/bin/env python3
"""Drives the adapters over pipes, holds every line against the schema, and looks from outside
at what they publish.

usage: adapters_test.py SOURCE_DIR BIN_DIR
"""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import unittest

import jsonschema

SOURCE, BIN = (os.path.abspath(sys.argv.pop(1)) for _ in range(2))
DEADLINE_S = 60  # generous: it only ends what hangs
NO_CONTEXT = 4
NO_CONTEXT_WHY = ("the thread has never touched the variable", "the slot is null",
                  "the record is not valid")
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACE_2, SPAN_2 = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"

with open(os.path.join(SOURCE, "conformance/testee/protocol.schema.json"), encoding="utf-8") as file:
    DEFINITIONS = json.load(file)["definitions"]
VALIDATORS = {}
REPLIES = {
    "hello": "hello_reply", "process.fork": "fork_reply", "process.reap": "reap_reply",
    "thread.spawn": "spawn_reply", "diag.tls_address": "tls_address_reply",
    "parallel": "parallel_reply"}


def validate(definition, line):
    if definition not in VALIDATORS:
        VALIDATORS[definition] = jsonschema.Draft7Validator(
            {"$ref": f"#/definitions/{definition}", "definitions": DEFINITIONS})
    VALIDATORS[definition].validate(line)


def pairs(**values):
    return [{"key": key, "value": {"stringValue": value}} for key, value in values.items()]


def resource(**values):
    return {"attributes": pairs(**values)}


def ids(trace=TRACE, span=SPAN, flags=1):
    return {"trace_id": trace, "span_id": span, "flags": flags}


def look(pid, *options):
    """What reader_ref says of a process: its exit code and its answer."""
    done = subprocess.run([os.path.join(BIN, "reader_ref"), "dump", "--json", *options, str(pid)],
                          capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    return done.returncode, json.loads(done.stdout) if done.stdout else {"context": None}


def context_of(pid):
    code, said = look(pid, "--no-threads")
    return said["context"] if code == 0 else None


class Adapter:
    def __init__(self, command, channel=None):
        env = dict(os.environ, CTXCONF="1", CTXCONF_PROTOCOL="1")
        if channel == "fd3":
            ours, theirs = socket.socketpair()
            env["CTXCONF_CHANNEL"] = "fd3"
            command = ["/bin/sh", "-c", f'exec "$0" "$@" 3<&{theirs.fileno()}', *command]
            self.process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL,
                                            pass_fds=[theirs.fileno()], start_new_session=True)
            theirs.close()
            self.to = self.back = ours.detach()
        else:
            self.process = subprocess.Popen(command, env=env, bufsize=0, stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, start_new_session=True)
            self.to, self.back = (os.dup(pipe.fileno())
                                  for pipe in (self.process.stdin, self.process.stdout))
            self.process.stdin.close()
            self.process.stdout.close()
        self.pending, self.last_id = b"", 0
        self.hello = self.say_hello()
        self.pid, self.caps = self.hello["pid"], self.hello["caps"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        for fd in {self.to, self.back}:
            os.close(fd)

    def say_hello(self):
        return self.ask("hello", v=1, suite="0.1.0", spec={"4719": "2026-04-07"})

    def write(self, text):
        data = text.encode()
        while data:
            data = data[os.write(self.to, data):]

    def line(self):
        while b"\n" not in self.pending:
            if not select.select([self.back], [], [], DEADLINE_S)[0]:
                raise AssertionError("no line")
            chunk = os.read(self.back, 65536)
            if not chunk:
                raise AssertionError("the adapter has ended")
            self.pending += chunk
        line, _, self.pending = self.pending.partition(b"\n")
        return json.loads(line)

    def send(self, op, **members):
        self.last_id += 1
        request = {"id": self.last_id, "op": op, **members}
        validate("request", request)
        self.write(json.dumps(request, separators=(",", ":"), sort_keys=True) + "\n")

    def reply(self, op):
        reply = self.line()
        validate(REPLIES.get(op, "reply"), reply)
        if reply["id"] != self.last_id:
            raise AssertionError(f"another id: {reply}")
        return reply

    def ask(self, op, **members):
        """The reply, which is ok."""
        self.send(op, **members)
        reply = self.reply(op)
        if not reply["ok"]:
            raise AssertionError(f"{op}: {reply}")
        return reply

    def refused(self, op, **members):
        self.send(op, **members)
        return self.reply(op)["error"]["kind"]

    def armed(self, op, **members):
        """The tid of the thread that waits; go() is next."""
        self.send(op, gate=True, **members)
        event = self.line()
        validate("event", event)
        if event["id"] != self.last_id:
            raise AssertionError(f"another id: {event}")
        return event["tid"]

    def go(self, op):
        go = {"op": "go", "id": self.last_id}
        validate("go", go)
        self.write(json.dumps(go) + "\n")
        return self.reply(op)

    def context(self):
        return context_of(self.pid)

    def threads(self):
        """Context of each thread that shows one, by its tid."""
        end = time.monotonic() + DEADLINE_S
        while True:
            code, said = look(self.pid)
            if code != 0:
                return {}
            threads = said["thread_contexts"]["threads"]
            unread = [one for one in threads if not one["context"] and one["why"] not in NO_CONTEXT_WHY]
            if not unread:
                return {one["tid"]: one["context"] for one in threads if one["context"]}
            # On a busy machine a thread may get no processor on which it could stop.
            if time.monotonic() > end or any("timed out" not in one["why"] for one in unread):
                raise AssertionError(f"reader_ref could not read {unread}")

    def wait_for(self, condition):
        end = time.monotonic() + DEADLINE_S
        while not condition():
            if time.monotonic() > end:
                raise AssertionError("it does not happen")
            time.sleep(0.005)

    def end(self):
        return self.process.wait(DEADLINE_S)


def maps(pid):
    with open(f"/proc/{pid}/maps", encoding="utf-8") as lines:
        return lines.read()


def has_ended(pid):
    """Also if nobody has waited for it yet."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def environment(pid):
    with open(f"/proc/{pid}/environ", "rb") as file:
        return file.read().split(b"\0")


class Basics:
    """What every adapter can do."""

    command = []

    def start(self, channel=None):
        return Adapter(self.command, channel)

    def test_publishes_and_says_bye(self):
        with self.start() as a:
            self.assertIsNone(a.context())
            a.ask("process.publish", resource=resource(**{"service.name": "a shop"}),
                  attributes=pairs(build="42"))
            context = a.context()
            self.assertEqual(context["resource"], {"service.name": "a shop"})
            self.assertEqual(context["attributes"], {"build": "42"})
            a.ask("bye")
            self.assertEqual(a.end(), 0)

    def test_refuses_what_it_does_not_know(self):
        with self.start() as a:
            a.write('{"id":9,"op":"thread.teleport"}\n')
            reply = a.line()
            validate("reply", reply)
            self.assertEqual((reply["id"], reply["error"]["kind"]), (9, "unsupported"))

    def test_ends_with_its_input(self):
        with self.start() as a:
            a.ask("process.publish", resource=resource(a="b"))
            os.dup2(os.open(os.devnull, os.O_RDONLY), a.to)
            self.assertEqual(a.end(), 0)


class Context(Basics):
    """Process context, in one process."""

    def test_values_of_every_kind(self):
        values = [
            {"stringValue": "ä\n\"\\\U0001f600"}, {"boolValue": True}, {"intValue": "-5"},
            {"intValue": 7}, {"doubleValue": 0.5}, {"bytesValue": "AP8B"}, {"bytesValue": ""},
            {"arrayValue": {"values": [{"stringValue": "x"}, {"arrayValue": {"values": []}}]}},
            {"kvlistValue": {"values": pairs(inner="y")}}]
        given = [{"key": f"k{i}", "value": value} for i, value in enumerate(values)]
        with self.start() as a:
            a.ask("process.publish", resource={"attributes": given}, attributes=given)
            context = a.context()
            for part in (context["resource"], context["attributes"]):
                self.assertEqual(list(part.values()), [
                    "ä\n\"\\\U0001f600", True, -5, 7, 0.5, {"bytes": "00ff01"}, {"bytes": ""},
                    ["x", []], {"inner": "y"}])

    def test_updates(self):
        with self.start() as a:
            self.assertEqual(a.refused("process.update", attributes=[]), "failed")
            a.ask("process.publish", resource=resource(a="1", b="2"), attributes=pairs(c="3"))
            first = a.context()
            a.ask("process.update", attributes=pairs(d="4"))
            second = a.context()
            self.assertEqual(second["resource"], {"a": "1", "b": "2"})
            self.assertEqual(second["attributes"], {"d": "4"})
            self.assertGreater(second["published_at_ns"], first["published_at_ns"])
            a.ask("process.update", resource=resource(a="5"))
            third = a.context()
            self.assertEqual(third["resource"], {"a": "5"})
            self.assertEqual(third["attributes"], {"d": "4"})
            self.assertEqual(third["address"], first["address"])
            a.ask("process.publish", resource=resource(e="6"))
            self.assertEqual(a.context()["attributes"], {})

    def test_drops(self):
        with self.start() as a:
            a.ask("process.publish", resource=resource(a="1"))
            a.ask("process.drop")
            self.assertIsNone(a.context())
            self.assertNotIn("OTEL_CTX", maps(a.pid))
            a.ask("process.publish", resource=resource(a="2"))
            self.assertEqual(a.context()["resource"], {"a": "2"})

    def test_needs_no_resource(self):
        with self.start() as a:
            a.ask("process.publish", attributes=pairs(a="1"))
            self.assertEqual(a.context()["attributes"], {"a": "1"})

    def test_bad_requests(self):
        with self.start() as a:
            for line in ('{"id":7,"op":"process.publish","resource":5}',
                         '{"id":7,"op":"process.publish","attributes":[{"key":1,"value":{}}]}'):
                a.write(line + "\n")
                self.assertEqual(a.line()["error"]["kind"], "bad-request")
            a.ask("process.publish", resource=resource(a="1"))
            self.assertEqual(a.context()["resource"], {"a": "1"})


class Processes:
    """Children, and what the process becomes."""

    def test_children(self):
        with self.start() as a:
            a.ask("process.publish", resource=resource(a="1"))
            before = a.context()
            idle = a.ask("process.fork", child={"do": "idle"})["child_pid"]
            other = a.ask("process.fork", child={"do": "publish", "resource": resource(a="2")})
            other = other["child_pid"]
            self.assertNotIn("OTEL_CTX", maps(idle))
            self.assertEqual(context_of(other)["resource"], {"a": "2"})
            self.assertEqual(a.context(), before)
            for child in (idle, other):
                self.assertEqual(a.ask("process.reap", child_pid=child)["status"], 9)
                self.assertFalse(os.path.exists(f"/proc/{child}"))
            self.assertEqual(a.context(), before)

    def test_children_end_with_it(self):
        with self.start() as a:
            child = a.ask("process.fork", child={"do": "idle"})["child_pid"]
            a.ask("bye")
            a.wait_for(lambda: has_ended(child))

    def test_becomes_another_program(self):
        with self.start() as a:
            a.ask("process.publish", resource=resource(a="1"))
            self.assertEqual(a.refused("process.exec", argv=["/nonexistent"], env={}), "failed")
            self.assertEqual(a.context()["resource"], {"a": "1"})
            a.send("process.exec", argv=["/bin/sleep", "60"], env={"CHILD_OF": "adapter"})
            a.wait_for(lambda: b"CHILD_OF=adapter" in environment(a.pid))
            self.assertNotIn("OTEL_CTX", maps(a.pid))
            self.assertIn("sleep", os.readlink(f"/proc/{a.pid}/exe"))
            for fd in os.listdir(f"/proc/{a.pid}/fd"):
                # The loader of the new program opens and closes its libraries meanwhile.
                with contextlib.suppress(FileNotFoundError):
                    self.assertNotIn("OTEL_CTX", os.readlink(f"/proc/{a.pid}/fd/{fd}"))

    def test_becomes_itself(self):
        with self.start() as a:
            a.ask("process.publish", resource=resource(a="1"))
            a.send("process.exec_self")
            a.wait_for(lambda: b"CTXCONF_RESUME=1" in environment(a.pid))
            self.assertEqual(a.say_hello()["pid"], a.pid)
            self.assertIsNone(a.context())
            a.ask("process.publish", resource=resource(a="2"))
            self.assertEqual(a.context()["resource"], {"a": "2"})


class Threads:
    """Thread context, gates, and lines that are not as usual."""

    def test_threads_have_contexts_of_their_own(self):
        with self.start() as a:
            a.ask("process.publish", resource=resource(a="1"))
            tid = a.ask("thread.spawn", thread="t1")["tid"]
            self.assertEqual(a.threads(), {})
            a.ask("thread.attach", thread="t1", ctx="A", **ids(), attributes=pairs(route="/cart"))
            a.ask("thread.attach", thread="main", ctx="M", attributes=[
                {"key": "text", "value": {"stringValue": ""}},
                {"key": "count", "value": {"intValue": "3"}},
                {"key": "yes", "value": {"boolValue": True}}])
            seen = a.threads()
            self.assertEqual(set(seen), {tid, a.pid})
            self.assertEqual((seen[tid]["trace_id"], seen[tid]["span_id"], seen[tid]["flags"]),
                             (TRACE, SPAN, 1))
            self.assertEqual(seen[tid]["attributes"], {"route": "/cart"})
            self.assertIsNone(seen[a.pid].get("trace_id"))
            self.assertEqual(seen[a.pid]["attributes"], {"text": "", "count": "3", "yes": "true"})
            self.assertEqual(a.context()["attributes"]["threadlocal.attribute_key_map"],
                             ["route", "text", "count", "yes"])
            a.ask("process.update", attributes=pairs(b="2"))
            self.assertEqual(a.threads(), seen)
            a.ask("thread.exit", thread="t1")
            self.assertEqual(set(a.threads()), {a.pid})
            self.assertFalse(os.path.exists(f"/proc/{a.pid}/task/{tid}"))

    def test_contexts_nest(self):
        with self.start() as a:
            tid = a.ask("thread.spawn", thread="t1")["tid"]
            a.ask("thread.attach", thread="t1", ctx="A", **ids(), attributes=pairs(a="1"))
            outer = a.threads()[tid]
            a.ask("thread.attach", thread="t1", ctx="B", **ids(TRACE_2, SPAN_2, 0),
                  attributes=pairs(b="2"))
            inner = a.threads()[tid]
            self.assertEqual((inner["trace_id"], inner["span_id"], inner["flags"]),
                             (TRACE_2, SPAN_2, 0))
            self.assertEqual(inner["attributes"], {"b": "2"})
            a.ask("thread.detach", thread="t1")
            self.assertEqual(a.threads()[tid], outer)
            a.ask("thread.detach", thread="t1")
            self.assertEqual(a.threads(), {})
            self.assertEqual(a.refused("thread.detach", thread="t1"), "failed")

    def test_an_armed_thread_waits(self):
        with self.start() as a:
            a.ask("process.publish", resource=resource(a="1"))
            before = a.context()
            tid = a.ask("thread.spawn", thread="t1")["tid"]
            self.assertEqual(a.armed("process.update", resource=resource(a="2")), a.pid)
            self.assertEqual(a.context(), before)
            a.go("process.update")
            self.assertEqual(a.context()["resource"], {"a": "2"})
            self.assertEqual(a.armed("thread.attach", thread="t1", ctx="A", **ids()), tid)
            self.assertEqual(a.threads(), {})
            self.assertEqual(a.go("thread.attach")["tid"], tid)
            self.assertEqual(set(a.threads()), {tid})

    def test_blocked_threads_show_their_contexts(self):
        with self.start() as a:
            tids = {}
            for how in ("futex", "sleep", "spin"):
                tids[how] = a.ask("thread.spawn", thread=how)["tid"]
                a.ask("thread.attach", thread=how, ctx="A", attributes=pairs(how=how))
                a.ask("thread.block", thread=how, how=how, ms=2000)
            seen = a.threads()
            self.assertEqual({tid: seen[tid]["attributes"] for tid in seen},
                             {tid: {"how": how} for how, tid in tids.items()})

    def test_over_one_socket(self):
        with self.start("fd3") as a:
            a.ask("process.publish", resource=resource(a="1"))
            self.assertEqual(a.context()["resource"], {"a": "1"})
            a.ask("bye")
            self.assertEqual(a.end(), 0)

    def test_lines_that_are_none(self):
        with self.start() as a:
            for line in ("junk", "[1]", '{"op":"bye"}', '{"id":"1","op":"bye"}', "[" * 65, "[" * 5000,
                         " " * ((1 << 20) + 1)):
                a.write(line + "\n")
                reply = a.line()
                validate("reply", reply)
                self.assertEqual(reply["error"]["kind"], "bad-request")
            a.ask("process.publish", resource=resource(a="1"))


class Cpp(Context, Processes, Threads, unittest.TestCase):
    command = [os.path.join(BIN, "adapter_cpp")]

    def test_a_child_that_publishes_has_the_keys_and_no_record(self):
        with self.start() as a:
            a.ask("process.publish", resource=resource(a="1"))
            a.ask("thread.attach", thread="main", ctx="A", **ids(), attributes=pairs(b="2"))
            child = a.ask("process.fork", child={"do": "publish", "resource": resource(a="3")})
            code, said = look(child["child_pid"])
            self.assertEqual((code, said["context"]["resource"]), (0, {"a": "3"}))
            self.assertEqual(said["context"]["attributes"]["threadlocal.attribute_key_map"], ["b"])
            self.assertEqual([one["context"] for one in said["thread_contexts"]["threads"]], [None])

    def test_contexts_grow_and_shrink(self):
        with self.start() as a:
            a.ask("thread.attach", thread="main", ctx="A", attributes=pairs(a="1"))
            a.ask("thread.append", thread="main", attributes=pairs(b="2", a="3"))
            self.assertEqual(a.threads()[a.pid]["attributes"], {"a": "3", "b": "2"})
            a.ask("thread.shrink", thread="main", keep=2)
            self.assertEqual(a.threads()[a.pid]["attributes"], {"a": "1", "b": "2"})
            a.ask("thread.shrink", thread="main", keep=0)
            self.assertEqual(a.threads()[a.pid]["attributes"], {})

    def test_contexts_move(self):
        with self.start() as a:
            tid = a.ask("thread.spawn", thread="t1")["tid"]
            for name, span in (("A", SPAN), ("B", SPAN_2)):
                a.ask("thread.attach", thread="main", ctx=name, **ids(span=span))
            a.ask("thread.move", **{"from": "main", "to": "t1", "ctx": "B"})
            seen = a.threads()
            self.assertEqual((seen[a.pid]["span_id"], seen[tid]["span_id"]), (SPAN, SPAN_2))
            a.ask("thread.detach", thread="t1")
            self.assertEqual(set(a.threads()), {a.pid})
            self.assertEqual(a.refused("thread.move", **{"from": "t1", "to": "main", "ctx": "B"}),
                             "failed")

    def test_says_where_the_slots_are(self):
        with self.start() as a:
            a.ask("thread.spawn", thread="t1")
            a.ask("thread.attach", thread="t1", ctx="A", **ids())
            slots = [int(a.ask("diag.tls_address", thread=name)["address"], 16)
                     for name in ("t1", "main")]
            pointers = []
            with open(f"/proc/{a.pid}/mem", "rb", buffering=0) as memory:
                for slot in slots:
                    memory.seek(slot)
                    pointers.append(int.from_bytes(memory.read(8), sys.byteorder))
                memory.seek(pointers[0])
                self.assertEqual(memory.read(24).hex(), TRACE + SPAN)
            self.assertEqual(pointers[1], 0)

    def test_keys_end_at_256(self):
        with self.start() as a:
            names = [f"k{i}" for i in range(300)]
            a.ask("thread.attach", thread="main", ctx="A",
                  attributes=pairs(**{name: "" for name in names}))
            self.assertEqual(a.context()["attributes"]["threadlocal.attribute_key_map"],
                             names[:256])
            self.assertEqual(set(a.threads()[a.pid]["attributes"]), set(names[:256]))
            a.ask("thread.attach", thread="main", ctx="B", attributes=pairs(k299="x", k255="y"))
            self.assertEqual(a.threads()[a.pid]["attributes"], {"k255": "y"})

    def test_in_parallel(self):
        with self.start() as a:
            requests = [{"op": "process.publish", "resource": resource(a=str(i))}
                        for i in range(8)]
            results = a.ask("parallel", requests=requests)["results"]
            self.assertEqual(results, [{"ok": True}] * 8)
            self.assertIn(a.context()["resource"], [{"a": str(i)} for i in range(8)])
            self.assertEqual(maps(a.pid).count("OTEL_CTX"), 1)

            tids = [a.ask("thread.spawn", thread=f"t{i}")["tid"] for i in range(8)]
            results = a.ask("parallel", requests=[
                {"op": "thread.attach", "thread": f"t{i}", "ctx": "A",
                 "attributes": pairs(**{f"k{i}": str(i)})} for i in range(8)])["results"]
            self.assertEqual([one["tid"] for one in results], tids)
            seen = a.threads()
            self.assertEqual([seen[tid]["attributes"] for tid in tids],
                             [{f"k{i}": str(i)} for i in range(8)])

            forked, refused = a.ask("parallel", requests=[
                {"op": "process.fork", "child": {"do": "idle"}},
                {"op": "thread.detach", "thread": "main"}])["results"]
            self.assertNotIn("OTEL_CTX", maps(forked["child_pid"]))
            self.assertEqual(refused["error"]["kind"], "failed")

    def test_a_child_that_updates(self):
        with self.start() as a:
            a.ask("process.publish", resource=resource(a="1"))
            child = a.ask("process.fork", child={
                "do": "update", "resource": resource(a="2"), "attributes": pairs(b="3"),
                "update": {"resource": resource(a="4")}})["child_pid"]
            seen = context_of(child)
            self.assertEqual((seen["resource"], seen["attributes"]), ({"a": "4"}, {"b": "3"}))
            self.assertEqual(a.context()["resource"], {"a": "1"})

    def test_a_child_that_withdraws(self):
        with self.start() as a:
            a.ask("process.publish", resource=resource(a="1"))
            child = a.ask("process.fork", child={
                "do": "drop", "resource": resource(a="2")})["child_pid"]
            self.assertNotIn("OTEL_CTX", maps(child))
            self.assertEqual(a.context()["resource"], {"a": "1"})

    def test_grandchildren(self):
        with self.start() as a:
            a.ask("process.publish", resource=resource(a="1"))
            forked = a.ask("process.fork", child={
                "do": "fork", "child": {"do": "publish", "resource": resource(a="2")}})
            self.assertNotIn("OTEL_CTX", maps(forked["child_pid"]))
            self.assertEqual(context_of(forked["grandchild_pid"])["resource"], {"a": "2"})

    def test_process_churn(self):
        with self.start() as a:
            a.ask("process.churn", iterations=3, seed="5eed")
            last = a.context()
            a.send("process.churn", iterations=1000000000, seed="5eed")
            a.wait_for(lambda: a.context() not in (last, None))
            context = a.context()
            for one in (last, context):
                values = [*one["resource"].values(), *one["attributes"].values()]
                self.assertEqual(len({value.rpartition("-")[2] for value in values}), 1)
            self.assertTrue(last["resource"]["service.name"].endswith("-0000000003"))

    def test_thread_churn(self):
        with self.start() as a:
            a.ask("thread.churn", threads=2, iterations=10, seed="5eed")
            self.assertEqual(a.threads(), {})
            a.send("thread.churn", threads=2, iterations=1000000000, seed="5eed")
            a.wait_for(lambda: len(os.listdir(f"/proc/{a.pid}/task")) == 3)
            a.wait_for(a.threads)
            for context in a.threads().values():
                span, value = context["span_id"], context["attributes"]["ctxconf.churn"]
                self.assertEqual(span, context["trace_id"][16:])
                self.assertTrue(1 <= len(value) <= 64)
                self.assertTrue((span * 4).startswith(value))


class C(Context, Threads, unittest.TestCase):
    command = [os.path.join(BIN, "adapter_c")]

    def test_bad_json(self):
        with self.start() as a:
            for value in ('{"doubleValue":true}', '{"stringValue":1}', '{"intValue":1.5}', "{",
                          '{"stringValue":"\\ud800"}', '{"stringValue":"\\x"}', '{"novel":1}',
                          '{"bytesValue":"-"}', '{"arrayValue":{}}', "nul", '{"boolValue":0}'):
                a.write('{"id":1,"op":"process.publish","attributes":[{"key":"a","value":%s}]}\n'
                        % value)
                self.assertEqual(a.line()["error"]["kind"], "bad-request", value)

    def test_has_one_record_for_ever(self):
        with self.start() as a:
            slot = int(a.ask("diag.tls_address", thread="main")["address"], 16)

            def record():
                with open(f"/proc/{a.pid}/mem", "rb", buffering=0) as memory:
                    memory.seek(slot)
                    pointer = int.from_bytes(memory.read(8), sys.byteorder)
                    if pointer == 0:
                        return 0, None
                    memory.seek(pointer)
                    return pointer, memory.read(25)[24]

            self.assertEqual(record(), (0, None))
            a.ask("thread.attach", thread="main", ctx="A", **ids())
            pointer, valid = record()
            self.assertEqual(valid, 1)
            a.ask("thread.detach", thread="main")
            self.assertEqual(record(), (pointer, 0))
            a.ask("thread.attach", thread="main", ctx="B", **ids())
            self.assertEqual(record(), (pointer, 1))


class Python(Context, Processes, unittest.TestCase):
    command = [sys.executable, os.path.join(BIN, "adapter.py")]


class Shell(Basics, unittest.TestCase):
    command = [os.path.join(BIN, "adapter.sh")]


if __name__ == "__main__":
    unittest.main()
