"""Runs the tests of this folder and prints the count of passed and failed ones last."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
import unittest
from pathlib import Path

HERE = Path(__file__).parent


class Result(unittest.TextTestResult):
    """Counts tests, not their failed steps, and says how long each took."""

    def __init__(self, *args: object, **kwargs: object):
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self.failed: set[str] = set()

    def startTest(self, test: unittest.TestCase) -> None:
        self._started = time.monotonic()
        super().startTest(test)

    def addError(self, test: unittest.TestCase, err: object) -> None:
        self.failed.add(test.id())
        super().addError(test, err)  # type: ignore[arg-type]

    def addFailure(self, test: unittest.TestCase, err: object) -> None:
        self.failed.add(test.id())
        super().addFailure(test, err)  # type: ignore[arg-type]

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: object) -> None:
        if err is not None:
            self.failed.add(test.id())
        super().addSubTest(test, subtest, err)  # type: ignore[arg-type]

    def stopTest(self, test: unittest.TestCase) -> None:
        mark = "FAIL" if test.id() in self.failed else "ok"
        self.stream.writeln(f"{mark:4} {time.monotonic() - self._started:5.1f} s  {test.id()}")
        super().stopTest(test)


def selected(suite: unittest.TestSuite, names: list[str]) -> unittest.TestSuite:
    out = unittest.TestSuite()
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            out.addTest(selected(item, names))
        elif not names or any(n in item.id() for n in names):
            out.addTest(item)
    return out


def missed_operations() -> list[str]:
    """The operations of the package's store client that no script has called on our server."""
    from differential import Recorder

    return Recorder.missed()


def main(names: list[str]) -> int:
    if "AGL_COMPAT_BINARY" not in os.environ:
        print("start the tests by test/compat/run.sh", file=sys.stderr)
        return 2
    started = time.monotonic()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # like Ctrl-C: what was started is stopped
    logging.disable(logging.CRITICAL)  # the scripts provoke errors on purpose, and the package logs each with its traceback
    suite = selected(unittest.defaultTestLoader.discover(str(HERE), top_level_dir=str(HERE)), names)
    runner = unittest.TextTestRunner(stream=sys.stdout, verbosity=0, resultclass=Result)
    result = runner.run(suite)
    assert isinstance(result, Result)
    failed = len(result.failed)
    if result.testsRun == 0:
        print(f"compat: no test matches {names}")
        return 1
    if not names and (missed := missed_operations()):
        print(f"FAIL no test calls {', '.join(missed)}")
        failed += 1
    print(f"compat: {max(result.testsRun - failed, 0)} passed, {failed} failed in {time.monotonic() - started:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    sys.exit(main(sys.argv[1:]))
