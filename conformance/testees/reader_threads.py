"""The thread contexts (OTEP 4947) that reader.py reads: what a record says, where the variable of a
thread is, and the sample of a thread that stands still. The last two are for x86-64, and for glibc
or no C library.

All that is read of an ELF file is read in the memory of the process: the file may be gone.
"""

import concurrent.futures
import contextlib
import ctypes
import os
import platform
import struct
import time

SCHEMAS = ("tlsdesc_v1_dev", "tls_v1")
NAME = b"otel_thread_ctx_v1"
HERE = platform.machine() == "x86_64"
MOST = 1 << 20  # of symbols and relocations of a file
PT_LOAD, PT_DYNAMIC, PT_TLS = 1, 2, 7
DT_PLTRELSZ, DT_HASH, DT_STRTAB, DT_SYMTAB, DT_RELA, DT_RELASZ = 2, 4, 5, 6, 7, 8
DT_JMPREL, DT_GNU_HASH = 23, 0x6FFFFEF5
STT_TLS = 6
DTPMOD64, TPOFF64, TLSDESC = 16, 18, 36  # relocations
PTRACE_GETREGS, PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 12, 17, 0x4206, 0x4207
WALL, STOP_WITHIN_S = 0x40000000, 2
FS_BASE = 21  # register of user_regs_struct
NOT_ALLOCATED = (1 << 64) - 1  # in a dynamic thread vector

ptrace = ctypes.CDLL(None, use_errno=True).ptrace
ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]


def key_map(context):
    """The names of attributes by index; None: the threads have no records of this kind."""
    values = {pair["key"]: pair["value"] for pair in context["attributes"]}
    if values.get("threadlocal.schema_version", {}).get("stringValue") not in SCHEMAS:
        return None
    names = values.get("threadlocal.attribute_key_map", {}).get("arrayValue", {"values": []})
    return [name.get("stringValue") for name in names["values"]]


def parse(data, names):
    """Result, record, and whether an index has no name. The bytes: trace id, span id, valid, flags, size
    of the attributes, attributes."""
    if data is None or len(data) < 28 or data[24] != 1:
        return "absent", None, False
    trace_id, span_id = data[:16], data[16:24]
    record, unknown = {"attributes": {}}, False
    if any(trace_id) and any(span_id):
        record |= {"trace_id": trace_id.hex(), "span_id": span_id.hex(), "flags": data[25]}
    area = data[28:28 + int.from_bytes(data[26:28], "little")]  # less, where memory ends
    while len(area) >= 2 and len(area) >= 2 + area[1]:
        index, value, area = area[0], area[2:2 + area[1]], area[2 + area[1]:]
        if index >= len(names):
            unknown = True
        elif names[index] is not None:
            try:
                record["attributes"][names[index]] = value.decode()
            except UnicodeDecodeError:
                record["attributes"][names[index]] = {"hex": value.hex()}
    return "accept", record, unknown


class Image:
    """An ELF file as it is loaded at an address; ValueError: there is none."""

    def __init__(self, memory, start, is_program):
        self.memory, self.start, self.is_program = memory, start, is_program
        header = self.read(start, 64)
        if header[:6] != b"\x7fELF\x02\x01":
            raise ValueError("not an ELF file of 64 bits")
        at, size, count = struct.unpack_from("<QxxxxxxxxxxxxxxHH", header, 32)
        parts = [struct.unpack("<IIQQQQQQ", self.read(start + at + i * size, 56))
                 for i in range(count)]
        loads = [p for p in parts if p[0] == PT_LOAD]
        self.bias = start - (loads[0][3] - loads[0][2]) if loads else start
        self.tls = next((p for p in parts if p[0] == PT_TLS), None)
        dynamic = next((p for p in parts if p[0] == PT_DYNAMIC), None)
        if dynamic is None:
            raise ValueError("no symbols")
        words = self.read(self.bias + dynamic[3], dynamic[6] // 16 * 16)
        self.tags = dict(reversed(list(struct.iter_unpack("<QQ", words))))
        self.symbol = self.definition()

    def read(self, address, size):
        data = self.memory.copy(address, size)
        if data is None:
            raise ValueError("it cannot be read")
        return data

    def word(self, address):
        return int.from_bytes(self.read(address, 8), "little")

    def place(self, tag):
        """glibc has made addresses of some of these."""
        value = self.tags[tag]
        return value if value >= self.start else value + self.bias

    def symbol_at(self, index):
        """Name, type, section and value."""
        name, info, _, section, value, _ = struct.unpack(
            "<IBBHQQ", self.read(self.place(DT_SYMTAB) + 24 * index, 24))
        at = self.place(DT_STRTAB) + name
        text = self.memory.copy(at, len(NAME) + 1)
        return text == NAME + b"\0", info & 15, section, value

    def indexes(self):
        """Of the symbols that may have the name."""
        if DT_GNU_HASH in self.tags:
            at, wanted = self.place(DT_GNU_HASH), 5381
            for byte in NAME:
                wanted = (wanted * 33 + byte) & 0xFFFFFFFF
            buckets, first, blooms, _ = struct.unpack("<IIII", self.read(at, 16))
            bucket = at + 16 + 8 * blooms
            chain = bucket + 4 * buckets
            index, = struct.unpack("<I", self.read(bucket + 4 * (wanted % buckets), 4))
            while index >= first:
                here, = struct.unpack("<I", self.read(chain + 4 * (index - first), 4))
                if here | 1 == wanted | 1:
                    yield index
                if here & 1:
                    break
                index += 1
        elif DT_HASH in self.tags:
            count = struct.unpack("<II", self.read(self.place(DT_HASH), 8))[1]
            yield from range(min(count, MOST))

    def definition(self):
        """The offset of the variable in the file's thread-local block; None: it has none."""
        for index in self.indexes():
            is_it, kind, section, value = self.symbol_at(index)
            if is_it and kind == STT_TLS and section != 0:
                return value
        return None

    def relocations(self):
        for table, size in ((DT_RELA, DT_RELASZ), (DT_JMPREL, DT_PLTRELSZ)):
            if table in self.tags and size in self.tags:
                data = self.read(self.place(table), min(self.tags[size], MOST * 24) // 24 * 24)
                for offset, info, addend in struct.iter_unpack("<QQq", data):
                    yield self.bias + offset, info & 0xFFFFFFFF, info >> 32, addend

    def accesses(self):
        """How the file comes by the variable: offsets from the thread pointer, or module and offset."""
        for got, kind, symbol, addend in self.relocations():
            if kind not in (DTPMOD64, TPOFF64, TLSDESC):
                continue
            if symbol != 0 and not self.symbol_at(symbol)[0]:
                continue
            if kind == DTPMOD64:
                place = self.word(got), self.word(got + 8)
                if symbol != 0 or place[1] == self.symbol:
                    yield place
                continue
            if symbol == 0 and addend != self.symbol:
                continue
            argument = self.word(got + 8 if kind == TLSDESC else got)
            if argument >> 63:  # blocks that are there from the start lie below the thread pointer
                yield argument - (1 << 64)
            elif kind == TLSDESC and argument != 0:
                yield self.word(argument), self.word(argument + 8)
        if self.is_program and self.symbol is not None and self.tls is not None:
            _, _, _, address, _, _, size, align = self.tls
            align = max(align, 1)
            first = -address % align
            yield self.symbol - (-(-(size - first) // align) * align + first)


def places(memory, pid):
    """All ways to the variable, of the program and of its libraries."""
    program = os.stat(f"/proc/{pid}/exe").st_ino
    starts, code = {}, set()
    with open(f"/proc/{pid}/maps", "rb") as maps:
        for line in maps:
            span, rights, offset, device, inode = line.split(maxsplit=5)[:5]
            if int(inode) == 0:
                continue
            if int(offset, 16) == 0:
                starts[int(span.partition(b"-")[0], 16)] = device, int(inode)
            if b"x" in rights:
                code.add((device, int(inode)))
    images, out = [], []
    odd = ValueError, KeyError, struct.error, ZeroDivisionError  # a file that is not as it should be
    for start, file in starts.items():
        if file in code:
            with contextlib.suppress(*odd):
                images.append(Image(memory, start, file[1] == program))
    if any(image.symbol is not None for image in images):
        for image in images:
            with contextlib.suppress(*odd):
                out += [place for place in image.accesses() if place not in out]
    return out


def address_of(memory, place, pointer):
    """Of the variable of the thread with this thread pointer; None: it has no block yet."""
    if isinstance(place, int):
        return pointer + place
    module, offset = place
    vector = memory.copy(pointer + 8, 8)
    if vector is None:
        return None
    at = int.from_bytes(vector, "little")
    length, entry = memory.copy(at - 16, 8), memory.copy(at + 16 * module, 8)
    if length is None or entry is None or module > int.from_bytes(length, "little"):
        return None
    block = int.from_bytes(entry, "little")
    return None if block in (0, NOT_ALLOCATED) else block + offset


@contextlib.contextmanager
def stopped(tid):
    """The thread pointer of a thread that stands still meanwhile. OSError: it cannot be stopped; TimeoutError: it
    did not stop in time, and remains traced until the calling thread ends."""
    if ptrace(PTRACE_SEIZE, tid, None, None) != 0:
        raise OSError(ctypes.get_errno(), "PTRACE_SEIZE")
    try:
        ptrace(PTRACE_INTERRUPT, tid, None, None)
        until = time.monotonic() + STOP_WITHIN_S
        status = 0
        while not os.WIFSTOPPED(status):
            late = time.monotonic() > until  # before the last try, whenever this thread gets to it
            pid, status = os.waitpid(tid, WALL | os.WNOHANG)
            if pid == 0:
                status = 0
                if late:
                    raise TimeoutError("it does not stop")
                time.sleep(0.0002)
            elif not os.WIFSTOPPED(status):
                raise OSError("it has ended")
        registers = (ctypes.c_uint64 * 27)()
        if ptrace(PTRACE_GETREGS, tid, None, ctypes.addressof(registers)) != 0:
            raise OSError(ctypes.get_errno(), "PTRACE_GETREGS")
        yield registers[FS_BASE]
    finally:
        ptrace(PTRACE_DETACH, tid, None, None)


def sample(memory, ways, pointer):
    """The bytes of the record that the thread has attached; None: there is no valid one."""
    for place in ways:
        slot = address_of(memory, place, pointer)
        at = int.from_bytes(memory.copy(slot, 8) or b"", "little") if slot is not None else 0
        if at == 0 or at % 2 != 0:
            continue
        head = memory.copy(at, 28)
        if head is not None and head[24] == 1:
            return head + memory.some(at + 28, int.from_bytes(head[26:28], "little"))
    return None


def read_record(memory, pid, tid):
    """The same, of a thread of a process. The search is not repeated for each sample by a profiler."""
    ways = places(memory, pid)
    if not ways:
        return None

    def sample_stopped():
        with stopped(tid) as pointer:
            return sample(memory, ways, pointer)

    # PTRACE_DETACH refuses a thread that has not stopped yet. Linux lets go of it when its tracer, this one thread,
    # ends.
    with concurrent.futures.ThreadPoolExecutor(max_workers=1) as tracer:
        return tracer.submit(sample_stopped).result()
