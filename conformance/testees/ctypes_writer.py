#!/usr/bin/env python3
"""Process context (OTEP 4719) from Python: publish, update, drop.

ProcessContext is all that an SDK needs; it uses nothing outside the standard
library. The program around it publishes from the command line.
"""

import argparse
import atexit
import ctypes
import os
import struct
import sys
import threading
import time

SIGNATURE = b"OTEL_CTX"
VERSION = 2
HEADER_SIZE = 32  # signature 0, version 8, payload size 12, timestamp 16, payload address 24

MFD_NOEXEC_SEAL = 0x0008  # Linux 6.3
MADV_DONTFORK = 10
PR_SET_VMA = 0x53564D41
PR_SET_VMA_ANON_NAME = 0
PROT_READ, PROT_WRITE = 1, 2
MAP_PRIVATE, MAP_ANONYMOUS = 0x02, 0x20
MAP_FAILED = ctypes.c_void_p(-1).value

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
libc.prctl.argtypes = [
    ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]


def last_error(call):
    number = ctypes.get_errno()
    return OSError(number, f"{call}: {os.strerror(number)}")


# ---- the message


def varint(value):
    out = bytearray()
    while value >= 0x80:
        out.append(0x80 | value & 0x7F)
        value >>= 7
    out.append(value)
    return bytes(out)


def delimited(number, content):
    return varint(number << 3 | 2) + varint(len(content)) + content


def any_value(value):
    if isinstance(value, str):
        return delimited(1, value.encode("utf-8"))
    if isinstance(value, bool):  # before int, of which it is one
        return varint(2 << 3) + varint(int(value))
    if isinstance(value, int):
        if not -(1 << 63) <= value < 1 << 63:
            raise ValueError(f"{value} does not fit into 64 bits")
        return varint(3 << 3) + varint(value & (1 << 64) - 1)
    if isinstance(value, float):
        return varint(4 << 3 | 1) + struct.pack("<d", value)
    if isinstance(value, (list, tuple)):
        return delimited(5, b"".join(delimited(1, any_value(v)) for v in value))
    if isinstance(value, dict):
        return delimited(6, key_values(1, value))
    if isinstance(value, bytes):
        return delimited(7, value)
    raise TypeError(f"no attribute value: {value!r}")


def key_values(number, pairs):
    return b"".join(
        delimited(number, delimited(1, key.encode("utf-8")) + delimited(2, any_value(value)))
        for key, value in pairs.items())


def encode(resource, attributes):
    """A ProcessContext message: the Resource in field 1, further pairs in field 2."""
    return delimited(1, key_values(1, resource)) + key_values(2, attributes)


# ---- the publisher


class ProcessContext:
    """The context of this process. Make one and keep it for the life of the process."""

    def __init__(self):
        self._lock = threading.Lock()
        self._fence_lock = threading.Lock()
        self._fence_lock.acquire()
        self._size = os.sysconf("SC_PAGESIZE")
        self._header = None
        self._payload = None  # keeps the published bytes alive
        self._timestamp = 0
        os.register_at_fork(after_in_child=self._after_fork_in_child)
        # The interpreter frees the payload when it ends, while a reader may still look.
        atexit.register(self.drop)

    @property
    def header_address(self):
        return self._header

    def publish(self, resource, attributes=None):
        """Publishes, or replaces what is published. OSError: there is no context then."""
        message = encode(resource, attributes or {})
        payload = ctypes.create_string_buffer(message, len(message))
        with self._lock:
            if self._header is None:
                self._create(payload)
            else:
                self._update(payload)

    def drop(self):
        """Withdraws the context; nothing happens when there is none."""
        with self._lock:
            if self._header is None:
                return
            self._store_timestamp(0)
            libc.munmap(self._header, self._size)
            self._header = self._payload = None

    def _create(self, payload):
        header, anonymous = self._map()
        if libc.madvise(header, self._size, MADV_DONTFORK) != 0:
            error = last_error("madvise(MADV_DONTFORK)")
            libc.munmap(header, self._size)
            raise error
        self._header, self._payload = header, payload
        ctypes.memmove(header, SIGNATURE, len(SIGNATURE))
        ctypes.c_uint32.from_address(header + 8).value = VERSION
        self._store_payload()
        self._store_timestamp(self._next_timestamp())
        if not self._set_name() and anonymous:
            error = last_error("neither a memfd nor a name for anonymous memory: prctl")
            libc.munmap(header, self._size)
            self._header = self._payload = None
            raise error

    def _update(self, payload):
        timestamp = self._next_timestamp()
        self._store_timestamp(0)
        # Readers may be in the old bytes until now; its buffer goes with this assignment.
        self._payload = payload
        self._store_payload()
        self._store_timestamp(timestamp)
        self._set_name()

    def _map(self):
        """Zeroed private memory, and whether it is anonymous."""
        fd = self._sized_memfd()
        flags = MAP_PRIVATE | (MAP_ANONYMOUS if fd is None else 0)
        # The mmap module would keep a duplicate of the descriptor open.
        address = libc.mmap(
            None, self._size, PROT_READ | PROT_WRITE, flags, -1 if fd is None else fd, 0)
        error = last_error("mmap")
        if fd is not None:
            os.close(fd)
        if address == MAP_FAILED:
            raise error
        return address, fd is None

    def _sized_memfd(self):
        flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
        for attempt in (flags | MFD_NOEXEC_SEAL, flags):
            try:
                fd = os.memfd_create("OTEL_CTX", attempt)
            except OSError:
                continue
            try:
                # Python ignores SIGXFSZ: a file size limit is an error here, not the end.
                os.ftruncate(fd, self._size)
                return fd
            except OSError:
                os.close(fd)
                return None
        return None

    def _store_payload(self):
        ctypes.c_uint32.from_address(self._header + 12).value = len(self._payload)
        ctypes.c_uint64.from_address(self._header + 24).value = ctypes.addressof(self._payload)

    def _store_timestamp(self, value):
        self._fence()
        ctypes.c_uint64.from_address(self._header + 16).value = value
        self._fence()

    def _fence(self):
        # Stores before a release stay before it, stores after an acquire stay
        # after it, and a release and a later acquire keep their order.
        self._fence_lock.release()
        self._fence_lock.acquire()

    def _next_timestamp(self):
        self._timestamp = max(time.clock_gettime_ns(time.CLOCK_BOOTTIME), self._timestamp + 1)
        return self._timestamp

    def _set_name(self):
        """Also a sign to watchers, so it is called even where the memfd has the name."""
        return libc.prctl(
            PR_SET_VMA, PR_SET_VMA_ANON_NAME, self._header, self._size, b"OTEL_CTX") == 0

    def _after_fork_in_child(self):
        # The kernel left the mapping with the parent: nothing to unmap.
        self._header = self._payload = None
        self._lock = threading.Lock()


# ---- the command line


def key_value(text):
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"not KEY=VALUE: {text}")
    return key, value


def hold_time(text):
    if text == "eof":
        return text
    try:
        value = int(text)
    except ValueError:
        value = -1
    if value < 0:
        raise argparse.ArgumentTypeError(f"neither milliseconds nor eof: {text}")
    return value


def parse_options():
    parser = argparse.ArgumentParser(
        description="Publishes process context (OTEP 4719) through ctypes.",
        epilog="exit: 0 done, 1 not published, 2 usage")
    parser.add_argument("--resource", metavar="KEY=VALUE", type=key_value, action="append",
                        default=[], help="an attribute of the Resource (repeatable)")
    parser.add_argument("--attribute", metavar="KEY=VALUE", type=key_value, action="append",
                        default=[], help="a pair of field 2 (repeatable)")
    parser.add_argument("--updates", metavar="N", type=int, default=0,
                        help="publish N times more, each with another ctxconf.update")
    parser.add_argument("--pause", metavar="MS", type=int, default=350,
                        help="before each update and before --drop (default 350)")
    parser.add_argument("--hold", metavar="MS|eof", type=hold_time, default=350,
                        help="how long to stay at the end; eof: until standard input ends")
    parser.add_argument("--drop", action="store_true", help="withdraw the context before the hold")
    parser.add_argument("--quiet", action="store_true", help="no line on standard output")
    return parser.parse_args()


def main():
    options = parse_options()
    resource = {
        "service.name": "ctxconf-ctypes",
        "telemetry.sdk.language": "python",
        "telemetry.sdk.name": "ctxconf",
        "telemetry.sdk.version": "0.1.0",
    }
    resource.update(options.resource)
    attributes = dict(options.attribute)
    context = ProcessContext()
    try:
        context.publish(resource, attributes)
    except OSError as error:
        print(f"ctypes_writer: not published: {error}", file=sys.stderr)
        return 1
    for number in range(1, options.updates + 1):
        time.sleep(options.pause / 1000)
        context.publish({**resource, "ctxconf.update": number}, attributes)
    if not options.quiet:
        print(f"published pid={os.getpid()} header={context.header_address:#x}", flush=True)
    if options.drop:
        time.sleep(options.pause / 1000)
        context.drop()
    if options.hold == "eof":
        sys.stdin.buffer.read()
    else:
        time.sleep(options.hold / 1000)
    return 0


if __name__ == "__main__":
    sys.exit(main())
