#!/usr/bin/env bash
# Runs every fuzz target for FUZZTIME (default 60s each), one after the other.
set -euo pipefail
cd "$(dirname "$0")/.."
grep -rn --include='*_test.go' -oE '^func Fuzz[A-Za-z0-9_]*' . | sort | while IFS=: read -r file _ func; do
	echo "== ${func#func } in $(dirname "$file")"
	go test -run '^$' -fuzz "^${func#func }\$" -fuzztime "${FUZZTIME:-60s}" -fuzzminimizetime 2s "$(dirname "$file")"
done
