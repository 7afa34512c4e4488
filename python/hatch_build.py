"""Puts the Go program into the wheel, as its script agl-go, and the Go module into the source distribution.

GOOS and GOARCH choose another platform than this one, as they do for go build. The program is static, so that a wheel for
Linux runs on every distribution.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, NoReturn

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PROGRAM = "./cmd/agl"

PLATFORMS = {
    ("linux", "amd64"): "manylinux_2_17_x86_64.manylinux2014_x86_64.musllinux_1_1_x86_64",
    ("linux", "arm64"): "manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64",
    ("darwin", "amd64"): "macosx_12_0_x86_64",
    ("darwin", "arm64"): "macosx_12_0_arm64",
    ("windows", "amd64"): "win_amd64",
    ("windows", "arm64"): "win_arm64",
}


class GoProgram(BuildHookInterface[Any]):
    """Runs before each build."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        module = self._module()
        if self.target_name == "sdist":
            for path in self._sources(module):
                build_data["force_include"][str(module / path)] = f"go/{path}"
            return
        system, machine, suffix = self._go(module, "env", "GOOS", "GOARCH", "GOEXE").split("\n")[:3]
        if (system, machine) not in PLATFORMS:
            self._refuse(f"there is no wheel platform for GOOS={system} GOARCH={machine}, must be one of {sorted(PLATFORMS)}")
        self._temporary = tempfile.TemporaryDirectory(prefix="agl-go-")  # removed by finalize, or with this process
        program = Path(self._temporary.name, "agl-go" + suffix)
        self._go(module, "build", "-trimpath", "-ldflags=-s -w", "-o", str(program), PROGRAM)
        build_data["shared_scripts"][str(program)] = program.name
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{PLATFORMS[system, machine]}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self.target_name != "sdist":
            self._temporary.cleanup()

    def _module(self) -> Path:
        """The Go module: beside this file in a source distribution, around it in the repository."""
        for folder in (Path(self.root, "go"), Path(self.root).parent):
            if (folder / "go.mod").is_file():
                return folder
        self._refuse(f"there is no Go module in {self.root}/go or around {self.root}")

    def _sources(self, module: Path) -> list[str]:
        """The files of the module that the program is built from, on any platform."""
        files = {"go.mod", "go.sum", "LICENSE"}
        kinds = ("GoFiles", "IgnoredGoFiles", "SFiles", "EmbedFiles")
        fields = "Dir,Module," + ",".join(kinds)
        for system in sorted({system for system, _ in PLATFORMS}):
            listed = self._go(module, "list", "-deps", f"-json={fields}", PROGRAM, GOOS=system)
            decoder = json.JSONDecoder()
            while listed := listed.lstrip():
                package, end = decoder.raw_decode(listed)
                listed = listed[end:]
                if package.get("Module", {}).get("Main"):
                    folder = Path(package["Dir"]).relative_to(module.resolve())
                    names = (name for kind in kinds for name in package.get(kind, ()) if not name.endswith("_test.go"))
                    files.update((folder / name).as_posix() for name in names)
        return sorted(files)

    def _go(self, module: Path, *args: str, **env: str) -> str:
        go = shutil.which("go")
        if go is None:
            wanted = next(line.split()[1] for line in (module / "go.mod").read_text().splitlines() if line.startswith("go "))
            self._refuse(
                f"building it from source needs Go {wanted} or later, and there is no go in PATH: "
                "install Go from https://go.dev/dl, or agl-go on a platform that it has a wheel for"
            )
        done = subprocess.run([go, *args], cwd=module, env={**os.environ, "CGO_ENABLED": "0", **env}, stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            self._refuse(f"`go {' '.join(args)}` in {module} ended with exit status {done.returncode}")
        return done.stdout

    def _refuse(self, why: str) -> NoReturn:
        raise SystemExit(f"agl-go: {why}")
