#!/bin/sh
# Writes the licences of the modules that agl links, as their terms ask for, to standard output.
set -eu
cd "$(dirname "$0")/.."
go list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}}' ./cmd/agl | sort -u | while read -r path version dir; do
	printf '================ %s %s\n\n' "$path" "$version"
	found=
	for file in "$dir"/LICENSE* "$dir"/LICENCE* "$dir"/COPYING* "$dir"/NOTICE*; do
		if [ -f "$file" ]; then
			cat "$file"
			echo
			found=yes
		fi
	done
	if [ -z "$found" ]; then
		echo "notices.sh: $path $version has no licence file" >&2
		exit 1
	fi
done
