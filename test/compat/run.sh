#!/bin/sh
# Runs the real Python package against the programs of this repository.
#
#   test/compat/run.sh            everything
#   test/compat/run.sh NAME...    only tests whose id contains one of the names, such as test_spans
#
# The last line is the count of passed and failed tests; the exit code is 1 if any failed.
set -eu

here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
root=$(CDPATH= cd -- "$here/../.." && pwd)
venv=$("$here/venv.sh")
agl=$root/.cache/compat-agl

cd "$root"
"${GO:-go}" build -o "$agl" ./cmd/agl

# What would make the package call home or wait for the network, or a proxy come between it and the servers.
unset AGL_TOKEN AGL_STORE_URL AGL_CURRENT_ROLE AGL_MANAGED_STORE AGL_SERVER_HOST AGL_SERVER_PORT \
	HTTP_PROXY HTTPS_PROXY ALL_PROXY http_proxy https_proxy all_proxy
export LITELLM_LOCAL_MODEL_COST_MAP=True DO_NOT_TRACK=1 AGENTOPS_API_KEY= PYTHONDONTWRITEBYTECODE=1
export AGL_COMPAT_BINARY="$agl"
exec "$venv/bin/python" -W ignore "$here/main.py" "$@"
