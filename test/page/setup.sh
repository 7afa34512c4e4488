#!/bin/sh
# Installs the pinned Node packages under .cache and prints where, with the browser:
# two assignments for env(1). It is quick when they are there already. The browser is
# the system's; where it is missing, Debian's is installed.
#
#   AGL_PAGE_BROWSER   the browser   (default chromium)
set -eu

here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
cache=$(CDPATH= cd -- "$here/../.." && pwd)/.cache
modules=$cache/page-node

mkdir -p "$cache"
exec 9>"$cache/page.lock"
flock 9

browser=${AGL_PAGE_BROWSER:-$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)}
if [ -z "$browser" ]; then
	sudo=$([ "$(id -u)" = 0 ] || echo sudo)
	$sudo apt-get update -q >&2
	$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -q chromium >&2
	browser=$(command -v chromium)
fi

want="$(node --version) $(cksum <"$here/package-lock.json")"
if [ "$(cat "$modules/stamp" 2>/dev/null)" != "$want" ]; then
	rm -rf "$modules"
	mkdir -p "$modules"
	cp "$here/package.json" "$here/package-lock.json" "$modules"
	(cd "$modules" && npm ci --silent --no-audit --no-fund --ignore-scripts >&2)
	printf '%s\n' "$want" >"$modules/stamp"
fi

printf 'AGL_PAGE_BROWSER=%s AGL_PAGE_NODE=%s\n' "$browser" "$modules"
