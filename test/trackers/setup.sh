#!/bin/sh
# Installs TensorBoard and MLflow under .cache, and prints where: an assignment for env(1). It is quick when they are there already.
#
#   AGL_TRACKERS_PYTHON   the interpreter   (default python3.11)
set -eu

here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
cache=$(CDPATH= cd -- "$here/../.." && pwd)/.cache
python=${AGL_TRACKERS_PYTHON:-python3.11}
venv=$cache/trackers-venv

mkdir -p "$cache"
exec 9>"$cache/trackers.lock"
flock 9

want="$("$python" -c 'import platform; print(platform.python_version())') $(cksum <"$here/requirements.txt")"
if [ "$(cat "$venv/stamp" 2>/dev/null)" != "$want" ]; then
	rm -rf "$venv"
	"$python" -m venv "$venv" >&2
	"$venv/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements.txt" >&2
	printf '%s\n' "$want" >"$venv/stamp"
fi
printf 'AGL_TRACKERS_VENV=%s\n' "$venv"
