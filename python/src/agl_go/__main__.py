"""``python -m agl_go``: runs the program in the wheel."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path
from typing import Iterator, NoReturn

SCRIPT = "agl-go" + (sysconfig.get_config_var("EXE") or "")


def find() -> str:
    """The path of the program. Raises FileNotFoundError, with the places where it was looked for."""
    looked = []
    for path in _places():
        if path.is_file():
            return str(path)
        looked.append(str(path))
    raise FileNotFoundError(f"{SCRIPT} is not in {', '.join(looked)}: install the wheel agl-go again")


def _places() -> Iterator[Path]:
    try:
        # The installer's record is right for every installation scheme.
        for file in metadata.files("agl-go") or []:
            if file.name == SCRIPT:
                yield Path(str(file.locate())).resolve()
    except metadata.PackageNotFoundError:
        pass
    yield Path(sysconfig.get_path("scripts"), SCRIPT)
    # pip install --target moves the files after it has recorded them.
    yield Path(__file__).resolve().parent.parent / "bin" / SCRIPT


def main() -> NoReturn:
    """Replaces this process by the program. On Windows it runs the program and exits with its status."""
    try:
        argv = [find(), *sys.argv[1:]]
    except FileNotFoundError as err:
        sys.exit(f"agl_go: {err}")
    if os.name != "nt":
        os.execv(argv[0], argv)
    with subprocess.Popen(argv) as process:
        while True:
            try:
                sys.exit(process.wait())
            except KeyboardInterrupt:
                continue  # the program got the interrupt, too, and ends when it has cleaned up


if __name__ == "__main__":
    main()
