#!/usr/bin/env bash
# go test, for CI: `test/again.sh TARGET ARGUMENTS`. Up to three tests that have failed are run once more, and what then passes is written to
# .cache/again, which CI shows. Such a test is a bug all the same, but not of the change that CI looks at. What is not a failed test fails at once: a data race,
# a panic, a limit of time, a package that does not build or leaves goroutines.
set -uo pipefail
target=$1
shift
log=$(mktemp)
trap 'rm -f "$log"' EXIT
go test "$@" 2>&1 | tee "$log"
code=${PIPESTATUS[0]}
if [ "$code" = 0 ] || grep -qE '^(WARNING: DATA RACE|panic:|fatal error:)' "$log"; then exit "$code"; fi
# A package's failed tests come before the line that says that it has failed.
failed=$(awk '/^--- FAIL: / { test = test "\n" $3 } /^ok/ { test = "" } /^FAIL\t/ { print $2 (test ? test : "\nnothing"); test = "" }' "$log")
packages=$(grep / <<<"$failed")
tests=$(grep -v / <<<"$failed" | sort -u)
if [ -z "$tests" ] || grep -qx nothing <<<"$tests" || [ "$(wc -l <<<"$tests")" -gt 3 ]; then exit "$code"; fi
flags=()
for argument in "$@"; do
	case $argument in ./* | github.com/agl-go/*) ;; *) flags+=("$argument") ;; esac
done
echo "again:" $tests
# shellcheck disable=SC2086 # each package is a word
go test "${flags[@]}" -count=1 -run "^($(paste -sd'|' <<<"$tests"))\$" $packages || exit
mkdir -p .cache/again
{ echo "$target:" $tests && cat "$log"; } >".cache/again/$target"
