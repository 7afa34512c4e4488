#!/bin/sh
# Creates the virtual environment with Agent-lightning v1.0 and prints its path. It is quick when the environment is already
# there: a stamp in it names the requirements and the interpreter that it was built from.
#
#   AGL_GATEWAY_VENV     where it lives                      (default .cache/gateway-venv in the repository)
#   AGL_GATEWAY_PYTHON   the interpreter, Python 3.12 or up  (default python3.12)
set -eu

here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
root=$(CDPATH= cd -- "$here/../.." && pwd)
venv=${AGL_GATEWAY_VENV:-$root/.cache/gateway-venv}
python=${AGL_GATEWAY_PYTHON:-python3.12}
# A shim of pyenv is there for versions that are not selected, too.
if ! "$python" -c '' 2>/dev/null && [ -z "${AGL_GATEWAY_PYTHON:-}" ] && command -v pyenv >/dev/null; then
	python=$(pyenv root)/versions/$(pyenv versions --bare | grep '^3\.12\.' | tail -n 1)/bin/python
fi
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 12))' || {
	echo "venv.sh: agentlightning 1.0.2 needs Python 3.12; name one in AGL_GATEWAY_PYTHON" >&2
	exit 1
}

want="$("$python" -c 'import platform; print(platform.python_version())') $(cksum <"$here/requirements.txt")"
mkdir -p "$(dirname -- "$venv")"
exec 9>"$venv.lock"
flock 9
if [ "$(cat "$venv/stamp" 2>/dev/null)" != "$want" ]; then
	rm -rf "$venv"
	"$python" -m venv "$venv" >&2
	"$venv/bin/pip" install --quiet --no-deps --disable-pip-version-check -r "$here/requirements.txt" >&2
	"$venv/bin/pip" check >&2
	printf '%s\n' "$want" >"$venv/stamp"
fi
exec 9>&-
printf '%s\n' "$venv"
