#!/bin/sh
# Installs the pinned Python and Node clients under .cache and prints where:
# two assignments for env(1). It is quick when they are there already.
#
#   AGL_CLIENTS_PYTHON   the interpreter   (default python3.11)
set -eu

here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
cache=$(CDPATH= cd -- "$here/../.." && pwd)/.cache
python=${AGL_CLIENTS_PYTHON:-python3.11}
venv=$cache/clients-venv
modules=$cache/clients-node

mkdir -p "$cache"
exec 9>"$cache/clients.lock"
flock 9

want="$("$python" -c 'import platform; print(platform.python_version())') $(cksum <"$here/python/requirements.txt")"
if [ "$(cat "$venv/stamp" 2>/dev/null)" != "$want" ]; then
	rm -rf "$venv"
	"$python" -m venv "$venv" >&2
	"$venv/bin/pip" install --quiet --no-deps --disable-pip-version-check -r "$here/python/requirements.txt" >&2
	"$venv/bin/pip" check >&2
	printf '%s\n' "$want" >"$venv/stamp"
fi

want="$(node --version) $(cksum <"$here/node/package-lock.json")"
if [ "$(cat "$modules/stamp" 2>/dev/null)" != "$want" ]; then
	rm -rf "$modules"
	mkdir -p "$modules"
	cp "$here/node/package.json" "$here/node/package-lock.json" "$modules"
	(cd "$modules" && npm ci --silent --no-audit --no-fund --ignore-scripts >&2)
	printf '%s\n' "$want" >"$modules/stamp"
fi

printf 'AGL_CLIENTS_VENV=%s AGL_CLIENTS_NODE=%s\n' "$venv" "$modules"
