"""Writes the golden files of package adapter from what the reference library answers.

    $(test/compat/venv.sh)/bin/python adapter/testdata/gen/generate.py

  golden/NAME.json      one trace written by hand, with the answers of every adapter
  random.jsonl.gz       many random traces and attribute sets, a line each
  literals.json         texts with what ast.literal_eval reads in them
"""

import ast
import gzip
import io
import json
import random
import shutil
import sys
from pathlib import Path
from typing import Any

sys.dont_write_bytecode = True

import literals
import reference
import scenarios
import trees
from agentlightning.adapter.messages import group_genai_dict
from agentlightning.utils.otel import filter_and_unflatten_attributes

OUT = Path(__file__).resolve().parent.parent
SEED = 20251017
TREES, PROXIES, FLATTENED = 1500, 400, 600


def golden(name: str, build: Any) -> dict[str, Any]:
    wire = build()
    spans = reference.parse(wire)
    return {
        "description": build.__doc__,
        "spans": wire,
        "tracer": [
            {"options": options, "want": reference.attempt(lambda: reference.tracer(spans, options))}
            for options in scenarios.OPTIONS
        ],
        "tree": reference.attempt(lambda: reference.tree_names(spans, False)),
        "repaired": reference.attempt(lambda: reference.tree_names(spans, True)),
        "proxy": reference.attempt(lambda: reference.proxy(spans)),
        "messages": reference.attempt(lambda: reference.messages(spans)),
        "rewards": reference.rewards(spans),
        "final_reward": reference.attempt(lambda: reference.final_reward(spans)),
    }


def brief(triplets: Any) -> Any:
    """[response id, agent name, reward] of each triplet, which is what differs between random traces."""
    if isinstance(triplets, dict):
        return triplets
    return [
        [t["metadata"]["request"]["span"], t["metadata"].get("agent_name"), t["reward"]] for t in triplets
    ]


def random_tree(rng: random.Random) -> dict[str, Any]:
    wire = trees.tree(rng)
    for one in wire:  # the one thing of a triplet that says which span it came from
        one["attributes"]["gen_ai.request.span"] = one["span_id"]
    spans = reference.parse(wire)
    return {
        "kind": "tree",
        "spans": trees.compact(wire),
        "repaired": reference.attempt(lambda: reference.tree_names(spans, True)),
        "want": [brief(reference.attempt(lambda: reference.tracer(spans, options))) for options in trees.OPTIONS],
    }


def random_proxy(rng: random.Random) -> dict[str, Any]:
    wire = trees.proxy(rng)
    spans = reference.parse(wire)
    answer = reference.attempt(lambda: reference.proxy(spans))
    want = [[t["prompt"]["token_ids"][0], t["metadata"]["response_id"], t["reward"]] for t in answer]
    compact = [[s["span_id"], s["sequence_id"], s["name"], s["start_time"], s["attributes"]] for s in wire]
    return {"kind": "proxy", "spans": compact, "want": want}


def random_flattened(rng: random.Random) -> dict[str, Any]:
    attributes = trees.flattened(rng)
    return {
        "kind": "flattened",
        "attributes": attributes,
        "unflattened": reference.attempt(lambda: filter_and_unflatten_attributes(attributes, "p")),
        "grouped": reference.attempt(lambda: group_genai_dict(attributes, "p")),
    }


def literal(text: str) -> dict[str, Any]:
    def read() -> Any:
        value = ast.literal_eval(text)
        return json.loads(json.dumps(value, allow_nan=False))

    return {"text": text, "want": reference.attempt(lambda: [read()])}


def main() -> None:
    directory = OUT / "golden"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    for name, build in scenarios.SCENARIOS.items():
        text = json.dumps(golden(name, build), indent=1, ensure_ascii=False, allow_nan=False)
        (directory / f"{name}.json").write_text(text + "\n")

    rng = random.Random(SEED)
    lines = [{"options": trees.OPTIONS}]
    lines += [random_tree(rng) for _ in range(TREES)]
    lines += [random_proxy(rng) for _ in range(PROXIES)]
    lines += [random_flattened(rng) for _ in range(FLATTENED)]
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as out:
        for line in lines:
            out.write((reference.dump(line) + "\n").encode())
    (OUT / "random.jsonl.gz").write_bytes(packed.getvalue())

    texts = json.dumps([literal(text) for text in literals.TEXTS], indent=1)
    (OUT / "literals.json").write_text(texts + "\n")


if __name__ == "__main__":
    main()
