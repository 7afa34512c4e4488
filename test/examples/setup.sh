#!/bin/sh
# Installs what the examples need under .cache and prints where: two assignments for env(1). It is quick when it is there already.
#
#   AGL_EXAMPLES_PYTHON   the interpreter   (default python3.11)
set -eu

here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
cache=$(CDPATH= cd -- "$here/../.." && pwd)/.cache
python=${AGL_EXAMPLES_PYTHON:-python3.11}
venv=$cache/examples-venv
modules=$cache/examples-node

mkdir -p "$cache"
exec 9>"$cache/examples.lock"
flock 9

# What builds the wheel of the README, which is installed without a network.
build=$here/../../python/requirements.txt

want="$("$python" -c 'import platform; print(platform.python_version())') $(cat "$here/requirements.txt" "$build" | cksum)"
if [ "$(cat "$venv/stamp" 2>/dev/null)" != "$want" ]; then
	rm -rf "$venv"
	"$python" -m venv "$venv" >&2
	"$venv/bin/pip" install --quiet --no-deps --disable-pip-version-check -r "$here/requirements.txt" >&2
	"$venv/bin/pip" check >&2
	"$venv/bin/pip" download --quiet --no-deps --disable-pip-version-check --dest "$venv/wheels" -r "$build" >&2
	printf '%s\n' "$want" >"$venv/stamp"
fi

want="$(node --version) $(cksum <"$here/package-lock.json")"
if [ "$(cat "$modules/stamp" 2>/dev/null)" != "$want" ]; then
	rm -rf "$modules"
	mkdir -p "$modules"
	cp "$here/package.json" "$here/package-lock.json" "$modules"
	(cd "$modules" && npm ci --silent --no-audit --no-fund --ignore-scripts >&2)
	printf '%s\n' "$want" >"$modules/stamp"
fi

printf 'AGL_EXAMPLES_VENV=%s AGL_EXAMPLES_NODE=%s\n' "$venv" "$modules"
