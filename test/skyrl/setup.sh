#!/bin/sh
# Installs SkyRL's Tinker server for the CPU under .cache, without PyTorch and CUDA, makes a tiny model for it, and prints
# where both are: assignments for env(1). It is quick when they are there already.
#
#   AGL_SKYRL_PYTHON   the interpreter, Python 3.12   (default python3.12)
set -eu

here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
cache=$(CDPATH= cd -- "$here/../.." && pwd)/.cache
python=${AGL_SKYRL_PYTHON:-python3.12}
# A shim of pyenv is there for versions that are not selected, too.
if ! "$python" -c '' 2>/dev/null && [ -z "${AGL_SKYRL_PYTHON:-}" ] && command -v pyenv >/dev/null; then
	python=$(pyenv root)/versions/$(pyenv versions --bare | grep '^3\.12\.' | tail -n 1)/bin/python
fi
venv=$cache/skyrl-venv
model=$cache/skyrl-model

mkdir -p "$cache"
exec 9>"$cache/skyrl.lock"
flock 9

"$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 12))' || {
	echo "setup.sh: SkyRL 0.3.0 needs Python 3.12; name one in AGL_SKYRL_PYTHON" >&2
	exit 1
}
want="$("$python" -c 'import platform; print(platform.python_version())') $(cksum <"$here/requirements.txt")"
if [ "$(cat "$venv/stamp" 2>/dev/null)" != "$want" ]; then
	rm -rf "$venv"
	"$python" -m venv "$venv" >&2
	"$venv/bin/pip" install --quiet --no-deps --disable-pip-version-check -r "$here/requirements.txt" >&2
	# Nothing may be missing but what skyrl itself asks for and the JAX backend does not use: peft, and with it torch, and datasets.
	"$venv/bin/pip" check | grep -v '^skyrl ' >&2 && exit 1
	printf '%s\n' "$want" >"$venv/stamp"
fi

want="$(cksum <"$here/requirements.txt") $(cksum <"$here/model.py")"
if [ "$(cat "$model/stamp" 2>/dev/null)" != "$want" ]; then
	rm -rf "$model"
	"$venv/bin/python" "$here/model.py" "$model" >&2
	printf '%s\n' "$want" >"$model/stamp"
fi

# What the engine has compiled is kept: each shape takes seconds.
printf 'AGL_SKYRL_VENV=%s AGL_SKYRL_MODEL=%s JAX_COMPILATION_CACHE_DIR=%s\n' "$venv" "$model" "$cache/skyrl-jax"
