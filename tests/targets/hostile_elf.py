"""Writes small static programs whose files cost a reader much.

hostile_elf.py names OUT: 2 M symbols (sparse) whose names have no end, in a string table of 1 MiB.
hostile_elf.py tables OUT: a compressed .debug_frame of 240 MB, in 640 KB.
hostile_elf.py sections OUT: 4 M sections (sparse), all with one name without an end.
hostile_elf.py notes OUT: 1,000 headers of the same 256 MiB (sparse) of empty notes.
hostile_elf.py build-id OUT: a build ID of 1 GB (sparse).
hostile_elf.py branches OUT: a function with 10,000 jumps, without unwind information.
"""

import os
import random
import struct
import subprocess
import sys
import zlib

START = """ .text
 .globl _start
_start: mov $%d, %%r12
1: call f
 dec %%r12
 jnz 1b
 mov $60, %%eax
 xor %%edi, %%edi
 syscall
"""

# Half a millisecond or more each time.
PLAIN = """f: sub $24, %rsp
 mov $2000000, %ecx
2: dec %ecx
 nop
 nop
 jnz 2b
 add $24, %rsp
 ret
"""


def branches():
    choose = random.Random(1)
    registers = "rax rcx rdx rsi rdi r8 r9 r10 r11 rbx rbp".split()
    code = [".globl f", "f: push %rbp", " push %rbx", " sub $264, %rsp", " mov $100, %r14d"]
    code += ["0:", " xor %eax, %eax"]
    for i in range(10_000):
        register = choose.choice(registers)
        code.append(f".L{i}: mov %{register}, {choose.randrange(32) * 8}(%rsp)")
        code.append(f" lea {choose.randrange(64)}(%{register}), %{choose.choice(registers)}")
        code.append(" test %eax, %ebx")
        code.append(f" jo .L{choose.randrange(10_000)}")
    code += [" dec %r14d", " jnz 0b", " add $264, %rsp", " pop %rbx", " pop %rbp", " ret"]
    return "\n".join(code + [".type f, @function", ".size f, .-f", ""])


def assemble(code, calls, out):
    source = out + ".s"
    with open(source, "w") as file:
        file.write(START % calls + code)
    gcc = ["gcc", "-nostdlib", "-static", "-no-pie", "-Wl,--build-id=none", "-o", out, source]
    subprocess.run(gcc, check=True)


class Elf:
    def __init__(self, path):
        self.path = path
        with open(path, "rb") as file:
            self.data = bytearray(file.read())
        (self.table,) = struct.unpack_from("<Q", self.data, 40)
        self.count, names = struct.unpack_from("<HH", self.data, 60)
        (self.names,) = struct.unpack_from("<Q", self.data, self.table + 64 * names + 24)

    def section(self, wanted):
        for header in range(self.table, self.table + 64 * self.count, 64):
            (name,) = struct.unpack_from("<I", self.data, header)
            start = self.names + name
            if self.data[start : self.data.index(0, start)].decode() == wanted:
                return header
        raise SystemExit(f"no section {wanted}")

    def append(self, content):
        at = (len(self.data) + 4095) // 4096 * 4096
        self.data += bytes(at - len(self.data)) + content
        return at

    def place(self, header, offset, size):
        struct.pack_into("<QQ", self.data, header + 24, offset, size)

    def write(self):
        with open(self.path, "wb") as file:
            file.write(self.data)
        os.chmod(self.path, 0o755)


def names(out):
    assemble(PLAIN, 400, out)
    elf = Elf(out)
    size = 1 << 20
    elf.place(elf.section(".strtab"), elf.append(b"A" * size), size)
    symbols = elf.append(b"")
    header = elf.section(".symtab")
    elf.place(header, symbols, 24 << 21)
    struct.pack_into("<I", elf.data, header + 44, 0)
    elf.write()
    os.truncate(out, symbols + (24 << 21) + 64)


def tables(out):
    assemble(PLAIN, 400, out)
    with open(out + ".bin", "wb") as file:
        file.write(bytes(16))
    add = ["objcopy", "--add-section", f".debug_frame={out}.bin", out]
    subprocess.run(add, check=True)
    cie = struct.pack("<II", 20, 0xFFFFFFFF)
    cie += bytes([1, 0, 1, 0x78, 16, 0x0C, 7, 8, 0x90, 1]) + bytes(6)
    block = struct.pack("<IIQQ", 20, 0, 0x10000000, 0x10) * 4096
    packer = zlib.compressobj(9)
    packed = packer.compress(cie)
    blocks = 240_000_000 // len(block)
    for _ in range(blocks):
        packed += packer.compress(block)
    packed += packer.flush()
    packed = struct.pack("<IIQQ", 1, 0, len(cie) + blocks * len(block), 1) + packed
    elf = Elf(out)
    offset = elf.append(packed)
    header = elf.section(".debug_frame")
    (flags,) = struct.unpack_from("<Q", elf.data, header + 8)
    struct.pack_into("<Q", elf.data, header + 8, flags | 0x800)
    elf.place(header, offset, len(packed))
    elf.write()


def sections(out):
    assemble(PLAIN, 400, out)
    elf = Elf(out)
    size, count = 1 << 20, 4_000_000
    names = elf.append(b"A" * size)
    table = elf.append(struct.pack("<IIQQQQIIQQ", 0, 0, 0, 0, 0, count, 0, 0, 0, 0))
    elf.data += struct.pack("<IIQQQQIIQQ", 0, 3, 0, 0, names, size, 0, 0, 0, 0)
    struct.pack_into("<Q", elf.data, 40, table)
    struct.pack_into("<HH", elf.data, 60, 0, 1)
    elf.write()
    os.truncate(out, table + 64 * count)


def with_notes(out, count, contents, size):
    """Adds headers of the same notes, which end with zeros."""
    assemble(PLAIN, 400, out)
    elf = Elf(out)
    (table, headers) = struct.unpack_from("<Q", elf.data, 32)[0], elf.data[56]
    notes = (len(elf.data) + 57344 + 8191) // 4096 * 4096
    header = struct.pack("<IIQQQQQQ", 4, 4, notes, 0, 0, size, size, 4)
    table = elf.append(elf.data[table : table + 56 * headers] + header * count)
    struct.pack_into("<Q", elf.data, 32, table)
    struct.pack_into("<H", elf.data, 56, headers + count)
    elf.data += bytes(notes - len(elf.data)) + contents
    elf.write()
    os.truncate(out, notes + size)


def notes(out):
    with_notes(out, 1000, b"", 256 << 20)


def build_id(out):
    with_notes(out, 1, struct.pack("<III4s", 4, 10**9, 3, b"GNU"), 16 + 10**9)


kind, out = sys.argv[1:]
if kind == "branches":
    assemble(branches(), 1000, out)
else:
    kinds = {"names": names, "tables": tables, "sections": sections}
    kinds |= {"notes": notes, "build-id": build_id}
    kinds[kind](out)
