"""Trains both agents together, and each alone while the other keeps the weights that it begins with, with several seeds. Prints the means
over the seeds on the held-out tasks, with 95 % intervals (Student's t), and what training together adds, seed by seed.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

STUDENT = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}  # 97.5 % quantile, by seeds
FROZEN = "{train: false}"
LEARNS = "{reward: answer}"
RUNS = {
    "together": {},
    "proposer alone": {"verifier": FROZEN},
    "verifier alone": {"proposer": FROZEN},
}
MEASURES = {
    "right answers": lambda d: d["answer"],
    "right proposals": lambda d: d["proposal"],
    "picked, of right proposals": lambda d: d["answer"] / d["proposal"] if d["proposal"] else 0,
}


def train(agl, frozen, seed):
    text = pathlib.Path("agl.yaml").read_text()
    for role, keys in frozen.items():
        line = f"{role}: {LEARNS}"
        if line not in text:
            raise SystemExit(f"agl.yaml has no line {line!r}")
        text = text.replace(line, f"{role}: {keys}")
    # Paths in a run file start from its folder.
    with tempfile.TemporaryDirectory() as out, tempfile.NamedTemporaryFile("w", suffix=".yaml", dir=".") as file:
        file.write(text)
        file.flush()
        summary = pathlib.Path(out, "summary.json")
        command = [agl, "train", file.name, "--output", out + "/run", "--seed", str(seed), "--summary", str(summary)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        ended = json.loads(summary.read_text())["after"]["dimensions"]
    print(f"{', '.join(f'{role} frozen' for role in frozen) or 'together'}, seed {seed}: {ended}", file=sys.stderr)
    return ended


def interval(values):
    mean, half = statistics.mean(values), STUDENT[len(values)] * statistics.stdev(values) / len(values) ** 0.5
    return f"{mean:.3f} ± {half:.3f}"


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seeds", type=int, default=5, choices=STUDENT)
    options.add_argument("--agl", default="agl")
    options = options.parse_args()
    results = {name: [train(options.agl, frozen, seed) for seed in range(1, options.seeds + 1)] for name, frozen in RUNS.items()}
    print("| | " + " | ".join(MEASURES) + " |\n|---" + "|---" * len(MEASURES) + "|")
    for name, ends in results.items():
        print(f"| {name} | " + " | ".join(interval([measure(d) for d in ends]) for measure in MEASURES.values()) + " |")
    for name, ends in list(results.items())[1:]:
        gains = (interval([measure(t) - measure(d) for t, d in zip(results["together"], ends)]) for measure in MEASURES.values())
        print(f"| together − {name} | " + " | ".join(gains) + " |")


if __name__ == "__main__":
    main()
