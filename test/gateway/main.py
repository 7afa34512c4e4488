"""Runs the same scripts against agl store --gateway and against agl-server."""

import contextlib
import io
import sys
import time

import answers
import calls
import kills
import restarts
import same
import trainer
from servers import Engine, Ours, Theirs

# Parts that run against both servers, and their results must be equal. The first name of each result is a request.
COMPARED = {"requests": same.run, "calls": calls.run, "trainer": trainer.run}
# Parts about what only our server does.
ALONE = {"answers": answers.run, "kills": kills.run, "restarts": restarts.run}


def compare(name: str, part) -> list[str]:
    results = []
    for kind in (Ours, Theirs):
        server, engine = kind(), Engine()
        try:
            server.start()
            with contextlib.redirect_stdout(io.StringIO()):  # the package prints each poll
                results.append(part(server, engine))
        finally:
            server.close()
    ours, theirs = results
    if [k for k, _ in ours] != [k for k, _ in theirs]:
        return [f"{name}: the results are of different requests:\n  ours   {[k for k, _ in ours]}\n  theirs {[k for k, _ in theirs]}"]
    wrong = []
    if name == "requests":
        wrong += [f"{name}: {key}: a difference that is documented was not looked at" for key in same.DIFFERENT if key not in dict(ours)]
    for (key, mine), (_, other) in zip(ours, theirs, strict=True):
        expected = same.DIFFERENT.get(key)
        if expected is not None and (mine, other) != expected:
            wrong.append(f"{name}: {key}: a difference that is documented has changed:\n  ours   {mine}\n  theirs {other}\n  wanted {expected}")
        elif expected is None and mine != other:
            wrong.append(f"{name}: {key}:\n  ours   {mine}\n  theirs {other}")
    print(f"{name}: {len(ours)} results, {len(wrong)} differences that are not documented")
    return wrong


def main() -> int:
    wanted = sys.argv[1:] or [*COMPARED, *ALONE]
    unknown = set(wanted) - {*COMPARED, *ALONE}
    if unknown:
        print(f"main.py: no part {sorted(unknown)}, only {[*COMPARED, *ALONE]}", file=sys.stderr)
        return 2
    wrong = []
    for name in wanted:
        start = time.monotonic()
        if name in COMPARED:
            wrong += compare(name, COMPARED[name])
        else:
            # Its trainer prints where a hook could not post an event: it does not repeat that.
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                wrong += [f"{name}: {w}" for w in ALONE[name]()]
        print(f"{name}: {time.monotonic() - start:.1f} s", flush=True)
    for w in wrong:
        print("FAIL", w)
    print("FAILED" if wrong else "ok")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
