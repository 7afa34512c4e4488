#!/bin/sh
# Creates the virtual environment with the real Python package and prints its path.
#
# It is quick when the environment is already there: a stamp in it names the requirements and the interpreter that it was
# built from. Several callers may run it at once; one builds, the others wait.
#
#   AGL_COMPAT_VENV     where it lives     (default .cache/compat-venv in the repository)
#   AGL_COMPAT_PYTHON   the interpreter    (default python3.11)
set -eu

here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
root=$(CDPATH= cd -- "$here/../.." && pwd)
venv=${AGL_COMPAT_VENV:-$root/.cache/compat-venv}
python=${AGL_COMPAT_PYTHON:-python3.11}

if ! version=$("$python" -c 'import platform; print(platform.python_version())'); then
	echo "venv.sh: cannot run '$python': install Python 3.11 or set AGL_COMPAT_PYTHON" >&2
	exit 1
fi
case $version in
3.11.*) ;;
*)
	echo "venv.sh: AGL_COMPAT_PYTHON '$python' is Python $version: the pinned requirements need 3.11" >&2
	exit 1
	;;
esac

want="$version $(cksum <"$here/requirements.txt")"
ready() { [ -x "$venv/bin/agl" ] && [ "$(cat "$venv/agl-stamp" 2>/dev/null)" = "$want" ]; }

if ! ready; then
	mkdir -p "$(dirname -- "$venv")"
	exec 9>"$venv.lock"
	flock 9
	if ! ready; then
		rm -rf "$venv"
		"$python" -m venv "$venv" >&2
		"$venv/bin/pip" install --quiet --no-deps --disable-pip-version-check -r "$here/requirements.txt" >&2
		"$venv/bin/pip" check >&2
		printf '%s\n' "$want" >"$venv/agl-stamp"
	fi
	exec 9>&-
fi
printf '%s\n' "$venv"
