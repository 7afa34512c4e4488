#!/bin/sh
# Creates the virtual environment that LiteLLM's proxy runs in, away from everything else, and prints its command. Its
# dependencies are the versions that the compatibility suite pins.
set -eu

here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
root=$(CDPATH= cd -- "$here/../.." && pwd)
venv=$root/.cache/litellm-venv
want="litellm[proxy]==1.106.2"

if [ "$(cat "$venv/stamp" 2>/dev/null)" != "$want" ]; then
	rm -rf "$venv"
	"${AGL_COMPAT_PYTHON:-python3.11}" -m venv "$venv" >&2
	"$venv/bin/pip" install --quiet --disable-pip-version-check -c "$root/test/compat/requirements.txt" "$want" >&2
	printf '%s\n' "$want" >"$venv/stamp"
fi
printf '%s\n' "$venv/bin/litellm"
