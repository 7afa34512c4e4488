"""The wheels of all platforms, as python/wheels.sh has built them: names, tags and contents."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
import struct
import unittest
import zipfile
from pathlib import Path

FOLDER = os.environ.get("AGL_GO_WHEELS", "")

PLATFORMS = {
    "linux/amd64": ("manylinux_2_17_x86_64.manylinux2014_x86_64.musllinux_1_1_x86_64", "ELF 62"),
    "linux/arm64": ("manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64", "ELF 183"),
    "darwin/amd64": ("macosx_12_0_x86_64", "Mach-O 7"),
    "darwin/arm64": ("macosx_12_0_arm64", "Mach-O 12"),
    "windows/amd64": ("win_amd64", "PE 34404"),
    "windows/arm64": ("win_arm64", "PE 43620"),
}
"""The tags of each platform, and the format of its programs with the number of the machine there."""


def format_of(program: bytes) -> str:
    """The format of a program, and the number of its machine."""
    if program.startswith(b"\x7fELF\x02\x01"):
        return f"ELF {struct.unpack_from('<H', program, 18)[0]}"
    if program.startswith(b"\xcf\xfa\xed\xfe"):  # 64 bits, little-endian
        return f"Mach-O {struct.unpack_from('<I', program, 4)[0] & 0xFFFFFF}"
    if program.startswith(b"MZ"):
        header = struct.unpack_from("<I", program, 0x3C)[0]
        if program[header : header + 4] == b"PE\0\0":
            return f"PE {struct.unpack_from('<H', program, header + 4)[0]}"
    return f"unknown: {program[:8]!r}"


@unittest.skipUnless(FOLDER, "make wheels builds them")
class Wheels(unittest.TestCase):
    def test_each_is_of_its_platform(self) -> None:
        platforms = os.environ.get("AGL_GO_PLATFORMS", "").split() or list(PLATFORMS)
        wheels = {p.stem.split("-")[-1]: p for p in Path(FOLDER).glob("agl_go-*.whl")}
        self.assertEqual(set(wheels), {PLATFORMS[p][0] for p in platforms}, "one wheel for each platform, and no others")
        self.assertEqual(len({p.name.split("-")[1] for p in wheels.values()}), 1, "all have the same version")
        modules = set()
        for name in platforms:
            tags, machine = PLATFORMS[name]
            with self.subTest(name), zipfile.ZipFile(wheels[tags]) as z:
                script = "agl-go.exe" if name.startswith("windows/") else "agl-go"
                [program] = [n for n in z.namelist() if ".data/scripts/" in n]
                self.assertTrue(program.endswith("/scripts/" + script), program)
                self.assertEqual(format_of(z.read(program)), machine)
                self.assertTrue(z.getinfo(program).external_attr >> 16 & 0o111, "it can be executed")

                [wheel] = [n for n in z.namelist() if n.endswith(".dist-info/WHEEL")]
                said = z.read(wheel).decode().splitlines()
                self.assertIn("Root-Is-Purelib: false", said)
                self.assertEqual({line for line in said if line.startswith("Tag: ")}, {f"Tag: py3-none-{tag}" for tag in tags.split(".")})

                [record] = [n for n in z.namelist() if n.endswith(".dist-info/RECORD")]
                for path, digest, size in csv.reader(io.StringIO(z.read(record).decode())):
                    if path == record:
                        continue
                    content = z.read(path)
                    self.assertEqual(len(content), int(size), path)
                    found = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
                    self.assertEqual("sha256=" + found, digest, path)
                modules.add(frozenset((n, z.getinfo(n).CRC) for n in z.namelist() if n.startswith("agl_go/")))
                self.assertIn("agl_go/py.typed", z.namelist())
        self.assertEqual(len(modules), 1, "the Python package is the same in all")
