#!/bin/sh
# The wheels of every platform, and a check of their names, tags and contents.
#
#   python/wheels.sh FOLDER [GOOS/GOARCH...]    default: all platforms that have a wheel
set -eu

here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
[ $# -gt 0 ] || { echo "usage: wheels.sh FOLDER [GOOS/GOARCH...]" >&2; exit 2; }
mkdir -p "$1"
folder=$(CDPATH= cd -- "$1" && pwd)
shift
[ $# -gt 0 ] || set -- linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64

rm -f "$folder"/agl_go-*.whl # of other versions
"$here/check.sh" --setup
python=$here/../.cache/python-venv/bin/python
for platform; do
	GOOS=${platform%/*} GOARCH=${platform#*/} "$python" -m build --no-isolation --wheel --outdir "$folder" "$here"
done
AGL_GO_WHEELS=$folder AGL_GO_PLATFORMS="$*" "$here/check.sh" tests.test_wheels
