#!/bin/sh
# Runs Agent-lightning v1.0's client, controller and rollout manager against agl store --gateway and against the package's
# own server. The same scripts run against both; each difference must be one that main.py names.
#
#   test/gateway/run.sh            everything
#   test/gateway/run.sh NAME...    only these parts: requests, calls, trainer, answers, kills, restarts
set -eu

here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
root=$(CDPATH= cd -- "$here/../.." && pwd)
venv=$("$here/venv.sh")
cd "$root"
"${GO:-go}" build -o .cache/gateway-agl ./cmd/agl
unset AGL_TOKEN AGL_KEY AGL_DB HTTP_PROXY HTTPS_PROXY ALL_PROXY http_proxy https_proxy all_proxy
export AGL_BINARY="$root/.cache/gateway-agl" PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$here" PATH="$venv/bin:$PATH"
exec "$venv/bin/python" -W ignore "$here/main.py" "$@"
