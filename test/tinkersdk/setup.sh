#!/bin/sh
# Installs the pinned versions of Tinker's Python SDK under .cache, one virtual
# environment each, and prints where: two assignments for env(1). It is quick
# when they are there already.
#
#   AGL_TINKER_PYTHON   the interpreter, 3.11 or newer   (default python3.11)
set -eu

here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
cache=$(CDPATH= cd -- "$here/../.." && pwd)/.cache
python=${AGL_TINKER_PYTHON:-python3.11}

mkdir -p "$cache"
exec 9>"$cache/tinker-sdk.lock"
flock 9

install() { # VERSION
	venv=$cache/tinker-$1
	want="$("$python" -c 'import platform; print(platform.python_version())') $(cksum <"$here/python/requirements.txt")"
	if [ "$(cat "$venv/stamp" 2>/dev/null)" != "$want" ]; then
		rm -rf "$venv"
		"$python" -m venv "$venv" >&2
		"$venv/bin/pip" install --quiet --no-deps --disable-pip-version-check -r "$here/python/requirements.txt" "tinker==$1" >&2
		"$venv/bin/pip" check >&2
		printf '%s\n' "$want" >"$venv/stamp"
	fi
}

install 0.24.1 # the last that writes JSON
install 0.38.0 # the newest
printf 'AGL_TINKER_JSON=%s AGL_TINKER_PROTOBUF=%s\n' "$cache/tinker-0.24.1" "$cache/tinker-0.38.0"
