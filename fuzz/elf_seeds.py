"""ELF files for make_seeds.py: small libraries that define otel_thread_ctx_v1, made by hand, so
that no compiler is needed."""
import struct

VARIABLE = b"otel_thread_ctx_v1"
PT_LOAD, PT_DYNAMIC, PT_INTERP, PT_NOTE, PT_TLS = 1, 2, 3, 4, 7
DT_HASH, DT_STRTAB, DT_SYMTAB, DT_RELA, DT_RELASZ, DT_RELAENT = 4, 5, 6, 7, 8, 9
DT_STRSZ, DT_SYMENT, DT_SONAME, DT_REL, DT_RELSZ, DT_RELENT = 10, 11, 14, 17, 18, 19
DT_DEBUG, DT_FLAGS, DT_GNU_HASH = 21, 30, 0x6FFFFEF5
TLS_GLOBAL = 1 << 4 | 6
SYMBOLIC = 2
# lea rdi, [rip + got]; call; lea rax, [rax + 8]; ret
LOCAL_DYNAMIC = b"\x48\x8d\x3d%s\xe8\x00\x00\x00\x00\x48\x8d\x40\x08\xc3"
# lea rax, [rip + got]; call [rax]; ret
DESCRIPTOR = b"\x48\x8d\x05%s\xff\x10\x64\x48\x8b\x00\xc3"
BASE = 0x1000  # link-time address of the file's first byte


def gnu_hash_of(name):
    value = 5381
    for byte in name:
        value = (value * 33 + byte) & 0xFFFFFFFF
    return value


class Elf:
    """The parts of a file, each with its place; what is added later comes after."""

    def __init__(self, wide=True, order="<", machine=62, kind=3):
        self.wide, self.order, self.machine, self.kind = wide, order, machine, kind
        self.segments = []
        self.body = bytearray(1024)  # headers

    def pack(self, fields, *values):
        return struct.pack(self.order + (fields if self.wide else fields.replace("Q", "I").replace("q", "i")), *values)

    def add(self, data):
        self.body += bytes(-len(self.body) % 8)
        at = len(self.body)
        self.body += data
        return at

    def segment(self, kind, at, size, memory=None, flags=5):
        self.segments.append((kind, flags, at, BASE + at, size, size if memory is None else memory))

    def symbol(self, name, info, section, value, size):
        if self.wide:
            return self.pack("IBBHQQ", name, info, 0, section, value, size)
        return self.pack("IIIBBH", name, value, size, info, 0, section)

    def finish(self, sections=()):
        table = 0
        if sections:
            table = self.add(b"".join(self.pack("IIQQQQIIQQ", *section) for section in sections))
        self.segment(PT_LOAD, 0, len(self.body))
        headers = b""
        for kind, flags, at, address, size, memory in self.segments:
            if self.wide:
                headers += self.pack("IIQQQQQQ", kind, flags, at, address, address, size, memory, 8)
            else:
                headers += self.pack("IIIIIIII", kind, at, address, address, size, memory, flags, 8)
        word = 2 if self.wide else 1
        ident = b"\x7fELF" + bytes([word, 1 if self.order == "<" else 2, 1]) + bytes(9)
        first = 64 if self.wide else 52
        header = ident + self.pack("HHIQQQIHHHHHH", self.kind, self.machine, 1, BASE, first, table, 0, first,
                                   56 if self.wide else 32, len(self.segments), 64 if self.wide else 40,
                                   len(sections), 0)
        self.body[: len(header + headers)] = header + headers
        return bytes(self.body)


def library(wide=True, order="<", machine=62, kind=3, hash_kind="sysv", access="descriptor", static=False, rel=False):
    elf = Elf(wide, order, machine, kind)
    strings = b"\0" + VARIABLE + b"\0lib.so\0"
    strings_at = elf.add(strings)
    symbols = elf.symbol(0, 0, 0, 0, 0) + elf.symbol(1, TLS_GLOBAL, 5, 8, 8)
    symbols_at = elf.add(symbols)
    if hash_kind == "sysv":
        hash_at = elf.add(elf.pack("IIIII", 1, 2, 1, 0, 0))
    else:
        value = gnu_hash_of(VARIABLE)
        bits = 64 if wide else 32
        bloom = 1 << value % bits | 1 << (value >> 6) % bits
        hash_at = elf.add(elf.pack("IIIIQII", 1, 1, 1, 6, bloom, 1, value | 1))
    got_at = elf.add(elf.pack("QQQQ", 1, 8, 0, 0) if access == "general" else bytes(32))
    kinds = {"descriptor": ((36, 1, 0),), "general": ((16, 1, 0), (17, 1, 0)), "initial": ((18, 1, 0),),
             "nameless": ((36, 0, 8),), "local": ((16, 0, 0),)}[access]
    rela = b""
    for number, (of_kind, symbol, addend) in enumerate(kinds):
        info = symbol << 32 | of_kind if wide else symbol << 8 | of_kind
        rela += elf.pack("QQ", BASE + got_at + number * (8 if wide else 4), info)
        if not rel:  # otherwise it is in the word
            rela += elf.pack("q", addend)
    rela_at = elf.add(rela)
    code = LOCAL_DYNAMIC if access == "local" else DESCRIPTOR
    code_at = elf.add(b"")
    elf.add(code % struct.pack("<i", got_at - (code_at + 7)))
    note = elf.pack("III", 4, 8, 3) + b"GNU\0buildid!"
    note_at = elf.add(note)
    dynamic = [(DT_HASH if hash_kind == "sysv" else DT_GNU_HASH, BASE + hash_at), (DT_STRTAB, BASE + strings_at),
               (DT_SYMTAB, BASE + symbols_at), (DT_STRSZ, len(strings)), (DT_SYMENT, 24 if wide else 16),
               (DT_SONAME, strings.index(b"lib.so")), (DT_REL if rel else DT_RELA, BASE + rela_at),
               (DT_RELSZ if rel else DT_RELASZ, len(rela)),
               (DT_RELENT if rel else DT_RELAENT, len(rela) // len(kinds)), (DT_FLAGS, SYMBOLIC),
               (DT_DEBUG, 0x70000000), (0, 0)]
    words = b"".join(elf.pack("QQ", tag, value) for tag, value in dynamic)
    dynamic_at = elf.add(words)
    data_at = elf.add(bytes(16))
    elf.segment(PT_TLS, data_at, 16, 32, flags=4)
    elf.segment(PT_DYNAMIC, dynamic_at, len(words), flags=6)
    elf.segment(PT_NOTE, note_at, len(note), flags=4)
    if kind == 2:
        path = b"/lib64/ld-linux-x86-64.so.2\0"
        elf.segment(PT_INTERP, elf.add(path), len(path), flags=4)
    if not static:
        return elf.finish()
    # .symtab and its strings, after the null section
    return elf.finish([(0,) * 10, (0, 2, 0, 0, symbols_at, len(symbols), 2, 1, 8, 24 if wide else 16),
                       (0, 3, 0, 0, strings_at, len(strings), 0, 0, 1, 0)])


def elf_seeds():
    for access in ("descriptor", "general", "initial", "nameless", "local"):
        yield access, library(access=access)
    yield "gnu-hash", library(hash_kind="gnu")
    yield "narrow", library(wide=False, machine=3)
    yield "narrow-sections", library(wide=False, machine=3, static=True)
    yield "rel", library(rel=True)
    yield "narrow-rel", library(wide=False, machine=3, rel=True)
    yield "big-endian", library(order=">", machine=22)
    yield "sections", library(static=True)
    yield "executable", library(kind=2, access="initial")
    yield "aarch64", library(machine=183)
    yield "cut", library()[:1400]
    yield "no-elf", b"\x7fELF" + bytes(60)


def words(*values):
    return struct.pack(f"<{len(values)}Q", *values)


def modules_seeds():
    """A list of two entries, and a thread with a block for the first module, before each file."""
    area = 0x70000000
    dynamic = BASE + 0x4D0  # in most of them
    debug = (1, area + 0x10)
    first = (0, 0, dynamic, area + 0x80, 0, 0)
    second = (0x7F0000000000, 0, 0x7F0000000000 + dynamic, 0, area + 0x10, 0, 0, 0)
    dtv = (2, 0, 1, 0, area + 0x180, 0, 0, 0)  # its length is before it
    memory = words(*debug, *first, *dtv, *second)
    memory += bytes(0x100 - len(memory)) + words(area + 0x100, area + 0x50)
    memory += bytes(0x200 - len(memory))
    for name, file in elf_seeds():
        yield name, struct.pack("<H", len(memory)) + memory + file


def mapped(lines, file):
    """The input of fuzz/mapped_input.h."""
    text = "".join(f"{line}\n" for line in lines).encode()
    return struct.pack("<H", len(text)) + text + file


def mapping(at, permissions):
    return f"{at:x}-{at + 0x2000:x} {permissions} 00000000 08:01 7 /lib.so"


def loaded_at_seeds():
    """As the loader maps each file, twice and once only to be read."""
    for name, file in elf_seeds():
        yield name, mapped([mapping(BASE, "r-xp"), mapping(0x5000, "r--p"), mapping(0x7F0000001000, "rwxp")], file)


def loaded_file_seeds():
    """The loader maps each file at its own addresses or elsewhere."""
    for name, file in elf_seeds():
        for where, at in (("own", BASE), ("biased", 0x7F0000001000)):
            yield f"{name}-{where}", mapped([mapping(at, "r-xp")], file)


def frames(code_at, frames_at):
    """A CIE and an FDE of the code: the return address is at the top of the stack."""
    cie = struct.pack("<IB3sBBBBB", 0, 1, b"zR\0", 1, 0x78, 16, 1, 0x1B) + b"\x0c\x07\x08\x90\x01"
    cie += bytes(-(len(cie) + 4) % 8)
    fde_at = len(cie) + 4
    start = BASE + code_at - (BASE + frames_at + fde_at + 8)
    fde = struct.pack("<IiIB", fde_at + 4, start, 0x100, 0)
    fde += bytes(-(len(fde) + 4) % 8)
    return struct.pack("<I", len(cie)) + cie + struct.pack("<I", len(fde)) + fde + bytes(4)


def callers_seeds():
    """A thread in code whose caller is in the same code."""
    base = 0x7F0000000000
    for name in ("frames", "none"):
        elf = Elf()
        code_at = elf.add(b"\x90" * 0x100)
        strings = b"\0.eh_frame\0.text\0.strtab\0"
        strings_at = elf.add(strings)
        frames_at = elf.add(b"")
        table = frames(code_at, frames_at)
        elf.add(table)
        sections = [(0,) * 10,
                    (1, 1, 2, BASE + frames_at, frames_at, len(table), 0, 0, 8, 0),
                    (11, 1, 6, BASE + code_at, code_at, 0x100, 0, 0, 16, 0),
                    (17, 3, 0, 0, strings_at, len(strings), 0, 0, 1, 0)]
        file = bytearray(elf.finish(sections if name == "frames" else ()))
        if name == "frames":
            struct.pack_into("<H", file, 62, 3)
        stack = words(base + code_at + 0x20, base + code_at + 0x40, 0, 0)
        registers = words(*(0,) * 7, 0x7FFFFFFFE000, *(0,) * 8, base + code_at + 0x10)
        yield name, registers + struct.pack("<H", len(stack)) + stack + bytes(file)
