#!/usr/bin/env python3
"""An adapter for `ctxconf run`, and the process context (OTEP 4719) that it drives.

The first half stands where your SDK would be; the second half is the adapter. Neither needs
more than the standard library.
"""

import atexit
import base64
import ctypes
import errno
import json
import os
import signal
import struct
import sys
import threading
import time

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
libc.prctl.argtypes = [
    ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
MAP_FAILED = ctypes.c_void_p(-1).value
PROT_READ_WRITE, MAP_PRIVATE, MAP_ANONYMOUS, MADV_DONTFORK = 3, 0x02, 0x20, 10
MFD_NOEXEC_SEAL = 0x0008  # Linux 6.3
PR_SET_PDEATHSIG, PR_SET_VMA, PR_SET_VMA_ANON_NAME = 1, 0x53564D41, 0
CLONE_NEWPID = 0x20000000


def os_error(call):
    return OSError(ctypes.get_errno(), f"{call}: {os.strerror(ctypes.get_errno())}")


class ProcessContext:
    """Publishes a message. Header: signature 0, version 8, size 12, timestamp 16, pointer 24."""

    SIZE = os.sysconf("SC_PAGESIZE")

    def __init__(self):
        self.header = self.payload = None
        self.timestamp = 0
        self.turn, self.order = threading.Lock(), threading.Lock()
        self.order.acquire()
        os.register_at_fork(after_in_child=self.forget)
        atexit.register(self.drop)  # before the interpreter frees the payload

    def forget(self):
        """In a child: MADV_DONTFORK has left the mapping with the parent."""
        self.header = self.payload = None
        self.turn = threading.Lock()

    def publish(self, message):
        payload = ctypes.create_string_buffer(message, len(message))
        with self.turn:
            self.timestamp = max(time.clock_gettime_ns(time.CLOCK_BOOTTIME), self.timestamp + 1)
            named = True
            if self.header is None:
                named = self.create()
            else:
                self.store_timestamp(0)
            self.payload = payload  # frees the old one, which no reader uses any more
            ctypes.c_uint32.from_address(self.header + 12).value = len(message)
            ctypes.c_uint64.from_address(self.header + 24).value = ctypes.addressof(payload)
            self.store_timestamp(self.timestamp)
            if self.set_name() != 0 and not named:
                error = os_error("no memfd, and no name for anonymous memory: prctl")
                self.withdraw()
                raise error

    def drop(self):
        with self.turn:
            self.withdraw()

    def withdraw(self):
        if self.header is not None:
            self.store_timestamp(0)
            libc.munmap(self.header, self.SIZE)
            self.header = self.payload = None

    def create(self):
        """Maps the header; is it one that shows its name in /proc/PID/maps by itself?"""
        fd = self.memfd()
        private = MAP_PRIVATE if fd >= 0 else MAP_PRIVATE | MAP_ANONYMOUS
        header = libc.mmap(None, self.SIZE, PROT_READ_WRITE, private, fd, 0)
        error = os_error("mmap")
        if fd >= 0:
            os.close(fd)
        if header == MAP_FAILED:
            raise error
        if libc.madvise(header, self.SIZE, MADV_DONTFORK) != 0:
            error = os_error("madvise")
            libc.munmap(header, self.SIZE)
            raise error
        ctypes.memmove(header, struct.pack("=8sI", b"OTEL_CTX", 2), 12)
        self.header = header
        return fd >= 0

    def memfd(self):
        usual = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
        for flags in (usual | MFD_NOEXEC_SEAL, usual):
            try:
                fd = os.memfd_create("OTEL_CTX", flags)
            except OSError:
                continue
            try:
                os.ftruncate(fd, self.SIZE)
                return fd
            except OSError:
                os.close(fd)
                break
        return -1

    def set_name(self):
        """Also where the memfd has the name: watchers wait for this call."""
        return libc.prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, self.header, self.SIZE, b"OTEL_CTX")

    def store_timestamp(self, value):
        self.fence()
        ctypes.c_uint64.from_address(self.header + 16).value = value
        self.fence()

    def fence(self):
        """Releasing a lock and then acquiring it keeps the stores on both sides apart."""
        self.order.release()
        self.order.acquire()


def varint(number):
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(out) + bytes([number])


def field(number, content):
    return varint(number << 3 | 2) + varint(len(content)) + content


def key_values(number, attributes):
    return b"".join(
        field(number, field(1, one["key"].encode()) + field(2, any_value(one["value"])))
        for one in attributes)


ANY_VALUE = {
    "stringValue": lambda v: field(1, v.encode()),
    "boolValue": lambda v: b"\x10" + varint(int(v)),
    "intValue": lambda v: b"\x18" + varint(int(v) & (1 << 64) - 1),
    "doubleValue": lambda v: b"\x21" + struct.pack("<d", float(v)),
    "arrayValue": lambda v: field(5, b"".join(field(1, any_value(one)) for one in v["values"])),
    "kvlistValue": lambda v: field(6, key_values(1, v["values"])),
    "bytesValue": lambda v: field(7, base64.b64decode(v)),
}


def any_value(value):
    return b"".join(ANY_VALUE[kind](content) for kind, content in value.items())


# What follows is the adapter: one function for each operation of docs/testee-protocol.md.

CONTEXT = ProcessContext()
GIVEN = {}  # resource and attributes, as they are published


CAPABILITIES = {
    "process.publish": {}, "process.update": {}, "process.drop": {}, "process.attributes": {},
    "process.no_resource": {}, "process.fork": {"child": ["idle", "publish"]},
    "process.fork_namespace": {}, "process.exec": {},
}


def hello(request):
    return {"v": 1, "pid": os.getpid(), "adapter": {"name": "adapter.py", "version": "1"},
            "sdk": {"name": "ctypes", "version": "1", "language": "python"},
            "sources": {"process": "conformance/testees/adapter.py"}, "caps": CAPABILITIES}


def encode(given):
    message = key_values(2, given.get("attributes", []))
    if "resource" in given:
        message = field(1, key_values(1, given["resource"]["attributes"])) + message
    return message


def publish(request):
    given = {name: request[name] for name in ("resource", "attributes") if name in request}
    CONTEXT.publish(encode(given))
    GIVEN.clear()
    GIVEN.update(given)


def update(request):
    if CONTEXT.header is None:
        raise OSError(errno.ENOENT, "nothing is published")
    publish({**GIVEN, **request})


def drop(request):
    CONTEXT.drop()


def fork(request):
    ours, theirs = os.pipe()
    child, parent = request["child"], os.getpid()
    if request.get("namespace") == "pid":
        if libc.unshare(CLONE_NEWPID) != 0:
            raise os_error("unshare")
        parent = 0  # outside of the child's namespace, and it ends with ours
    pid = os.fork()
    if pid == 0:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, None, 0, None)
        if os.getppid() != parent:
            os._exit(1)
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, 0)
        os.dup2(nowhere, 1)
        try:
            if child["do"] == "publish":
                publish(child)
            os.write(theirs, b"done")
        except Exception as error:
            os.write(theirs, str(error).encode()[:4000])
        while True:
            signal.pause()
    os.close(theirs)
    with os.fdopen(ours, "rb") as pipe:
        said = pipe.read1(4096).decode()  # nothing, if the child has ended
    if said != "done":
        raise OSError(0, f"the child: {said}")
    return {"child_pid": pid}


def reap(request):
    os.kill(request["child_pid"], signal.SIGKILL)
    return {"status": os.waitpid(request["child_pid"], 0)[1]}


def execute(request):
    os.execve(request["argv"][0], request["argv"], {**os.environ, **request["env"]})


def exec_self(request):
    os.execve(sys.executable, sys.orig_argv, {**os.environ, "CTXCONF_RESUME": "1"})


OPERATIONS = {
    "hello": hello, "bye": lambda request: None,
    "process.publish": publish, "process.update": update, "process.drop": drop,
    "process.fork": fork, "process.reap": reap,
    "process.exec": execute, "process.exec_self": exec_self,
}


def answer(request):
    if request["op"] not in OPERATIONS:
        return {"ok": False, "error": {"kind": "unsupported", "message": request["op"]}}
    try:
        return {"ok": True, **(OPERATIONS[request["op"]](request) or {})}
    except OSError as error:
        names = {"errno": errno.errorcode[error.errno]} if error.errno in errno.errorcode else {}
        return {"ok": False, "error": {"kind": "failed", "message": str(error), **names}}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        return {"ok": False, "error": {"kind": "bad-request", "message": repr(error)}}


for line in sys.stdin:
    request = json.loads(line)
    print(json.dumps({"id": request["id"], **answer(request)}), flush=True)
    if request["op"] == "bye":
        break
