#!/bin/sh
# Types, unit tests, and the wheel: built, installed where nothing else is, and used by real runs.
#
#   python/check.sh            everything
#   python/check.sh NAME...    only these tests, such as tests.test_agent
#   python/check.sh --setup    only the environment in which they run
#
#   AGL_GO_PYTHON   the interpreter    (default python3)
set -eu

here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
root=$(CDPATH= cd -- "$here/.." && pwd)
venv=$root/.cache/python-venv
python=${AGL_GO_PYTHON:-python3}

want="$("$python" -V) $(cksum <"$here/requirements.txt")"
if [ "$(cat "$venv/agl-stamp" 2>/dev/null)" != "$want" ]; then
	rm -rf "$venv"
	"$python" -m venv "$venv"
	"$venv/bin/pip" install --quiet --no-deps --disable-pip-version-check -r "$here/requirements.txt"
	printf '%s\n' "$want" >"$venv/agl-stamp"
fi

[ "${1-}" != --setup ] || exit 0
# Of a run that this one may be a part of.
unset AGL_TOKEN AGL_STORE_URL AGL_TASK AGL_TASK_FILE AGL_RESULT_FILE AGL_RESOURCES_FILE AGL_KEEPALIVE
export PYTHONDONTWRITEBYTECODE=1
cd "$here"
if [ $# -gt 0 ]; then
	PYTHONPATH=src exec "$venv/bin/python" -m unittest "$@"
fi
"$venv/bin/mypy" --cache-dir "$root/.cache/mypy"
PYTHONPATH=src exec "$venv/bin/python" -m unittest discover -s tests -t .
