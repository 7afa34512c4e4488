#!/bin/sh
# Writes the manual page and the completions of the command in this checkout to dist-manual, and the licences of what it links.
set -eu
cd "$(dirname "$0")/.."
mkdir -p dist-manual
CGO_ENABLED=0 go build -o dist-manual/agl ./cmd/agl
dist-manual/agl man >dist-manual/agl.1
for shell in bash zsh fish; do
	dist-manual/agl completion "$shell" >"dist-manual/agl.$shell"
done
rm dist-manual/agl
sh packaging/notices.sh >dist-manual/THIRD_PARTY_NOTICES
