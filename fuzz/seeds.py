#!/usr/bin/env python3
"""Writes seeds for the target `cdb` into the directory that is named: a few good commands of each kind, from which the fuzzer
finds its way to what is wrong with them. The form of an input is told at `cdb` in tests/src/entry.rs."""

import pathlib
import sys


def reading(cdb):
    """A command that may give 16 KiB."""
    return cdb.ljust(16, b"\0") + bytes([0x75, 0, 0, 0])


def writing(cdb, length, data):
    """A command with so many bytes of Data-Out, in which `data` repeats."""
    return cdb.ljust(16, b"\0") + bytes([0x06]) + length.to_bytes(2, "big") + bytes([len(data)]) + data


def hexed(text):
    return bytes.fromhex(text)


BLOCK = 512
SEEDS = {
    "read-write-10": [writing(hexed("2a000000000500000200"), 2 * BLOCK, b"\1\2"), reading(hexed("28000000000500000200"))],
    "read-write-16": [
        writing(hexed("8a000000000000000009000000010000"), BLOCK, b"\3"),
        reading(hexed("88000000000000000009000000010000")),
    ],
    "write-same": [
        writing(hexed("93080000000000000000000000080000"), BLOCK, b"\0"),
        writing(hexed("41000000000100000400"), BLOCK, b"\4"),
    ],
    "unmap": [writing(hexed("42000000000000001800"), 24, hexed("001600100000000000000000000000000000000400000000"))],
    "compare-and-write": [writing(hexed("89000000000000000000000000010000"), 2 * BLOCK, b"\0")],
    "orwrite": [writing(hexed("8b000000000000000000000000010000"), BLOCK, b"\x0f")],
    "verify": [writing(hexed("2e020000000100000100"), BLOCK, b"\5"), writing(hexed("2f020000000100000100"), BLOCK, b"\5")],
    "write-atomic": [writing(hexed("9c000000000000000000000000080000"), 8 * BLOCK, b"\6")],
    "format": [writing(hexed("041000000000"), 4, b"\0"), writing(hexed("041000000000"), 9, hexed("008800000001000107"))],
    "sanitize": [writing(hexed("48010000000000000500"), 5, hexed("01000001ee")), reading(hexed("4802"))],
    "capacity": [reading(hexed("9e100000000000000000000000200000")), reading(hexed("9e120000000000000000000001000000"))],
    "mode-6": [reading(hexed("1a003fffff00")), writing(hexed("151000001800"), 24, hexed("00000000081204") + bytes(17))],
    "mode-10": [
        reading(hexed("5a003f00000000010000")),
        writing(hexed("55100000000000001400"), 20, bytes(8) + hexed("0a0a0210") + bytes(8)),
    ],
    "inquiry": [reading(hexed("120000006000"))]
    + [reading(bytes([0x12, 1, page, 0, 0xFF, 0])) for page in (0x00, 0x80, 0x83, 0x86, 0xB0, 0xB2)],
    "log": [reading(hexed("4d004000000000010000")), reading(hexed("4d005900000000010000"))],
    "self-test": [reading(hexed("1da000000000")), reading(hexed("4d005000000000040000")), reading(hexed("1c0100004000"))],
    "reserve": [reading(bytes([code])) for code in (0x16, 0x17, 0x56, 0x57)],
    "persistent-reserve": [
        writing(hexed("5f000000000000001800"), 24, bytes(15) + b"\1" + bytes(8)),
        writing(hexed("5f010100000000001800"), 24, bytes(7) + b"\1" + bytes(16)),
        reading(hexed("5e030000000000010000")),
        writing(hexed("5f040100000000001800"), 24, bytes(7) + b"\1" + bytes(7) + b"\1" + bytes(8)),
    ],
    "extended-copy": [
        writing(
            hexed("830000000000000000000000004c0000"),
            76,
            hexed("0100002000000000 0000001c00000000")
            + hexed("e400000001030010")
            + bytes(24)
            + hexed("020000180000000000000001")
            + bytes(16),
        ),
        reading(hexed("84030000000000000000000001000000")),
    ],
    "token": [
        writing(
            hexed("83100000000000000001000000200000"), 32, b"\0\x1e" + bytes(12) + b"\0\x10" + bytes(11) + b"\4" + bytes(4)
        ),
        reading(hexed("84070000000100000000000004000000")),
    ],
    "reports": [
        reading(hexed("a00000000000000001000000")),
        reading(hexed("a30c00000000000040000000")),
        reading(hexed("a30a00000000000001000000")),
        reading(hexed("a30500000000000001000000")),
    ],
    "sets": [
        writing(hexed("a40a00000000000000080000"), 8, hexed("0000000001000001")),
        writing(hexed("a40600000000000000040000"), 4, b"abc\0"),
    ],
    "medium": [reading(hexed(cdb)) for cdb in ("1b0000000100", "1e0000000100", "35", "34", "37001c0000000000080000")],
}

if __name__ == "__main__":
    directory = pathlib.Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    for name, commands in SEEDS.items():
        (directory / name).write_bytes(b"".join(commands))
