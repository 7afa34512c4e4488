"""Trains both agents together, and each alone while the other keeps the weights that it begins with, with several seeds. Prints how well
each does on the held-out tasks after some numbers of debates, with 95 % intervals (Student's t), and what training together adds, seed by seed.
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
LEARNS = {"proposer": "{reward: picked}", "verifier": "{reward: answer}"}
SIZES = "group_size: 8"
STEPS = 10, 30, 50
DEBATES = 128  # of a step
SKILLS = {"proposer": "proposal", "verifier": "verdict"}  # what tests a role alone


def train(agl, frozen, seed):
    """Returns the means of the rewards on the held-out tasks after each of STEPS."""
    text = pathlib.Path("agl.yaml").read_text()
    changes = {SIZES: f"{SIZES}, validation: {{every: {STEPS[0]}}}"}
    if frozen:
        changes[f"{frozen}: {LEARNS[frozen]}"] = f"{frozen}: {FROZEN}"
    for old, new in changes.items():
        if old not in text:
            raise SystemExit(f"agl.yaml has no {old!r}")
        text = text.replace(old, new)
    # Paths in a run file start from its folder.
    with tempfile.TemporaryDirectory() as out, tempfile.NamedTemporaryFile("w", suffix=".yaml", dir=".") as file:
        file.write(text)
        file.flush()
        subprocess.run([agl, "train", file.name, "--output", out + "/run", "--seed", str(seed)], check=True, stdout=subprocess.DEVNULL)
        with open(out + "/run/metrics.jsonl") as lines:
            reports = [json.loads(line) for line in lines]
    means = {r["step"]: r["validation"]["dimensions"] for r in reports if r["step"] in STEPS}
    print(f"{frozen or 'no'} agent frozen, seed {seed}: {means}", file=sys.stderr)
    return means


def interval(values):
    mean, half = statistics.mean(values), STUDENT[len(values)] * statistics.stdev(values) / len(values) ** 0.5
    return f"{mean:.3f} ± {half:.3f}"


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seeds", type=int, default=5, choices=STUDENT)
    options.add_argument("--first", type=int, default=1, help="the first of the seeds")
    options.add_argument("--agl", default="agl")
    options = options.parse_args()
    seeds = range(options.first, options.first + options.seeds)
    together = [train(options.agl, None, seed) for seed in seeds]
    alone = {role: [train(options.agl, *(other for other in SKILLS if other != role), seed) for seed in seeds] for role in SKILLS}

    print("| debates | " + " | ".join(f"{skill}: together | {role} alone" for role, skill in SKILLS.items()) + " | answer: together |")
    print("|---" * (2 + 2 * len(SKILLS)) + "|")
    for step in STEPS:
        cells = [runs for role, skill in SKILLS.items() for runs in ([r[step][skill] for r in together], [r[step][skill] for r in alone[role]])]
        cells.append([r[step]["answer"] for r in together])
        print(f"| {DEBATES * step:,} | " + " | ".join(interval(c) for c in cells) + " |")

    print("\n| debates | " + " | ".join(f"{role}: together − alone" for role in SKILLS) + " |\n|---" + "|---" * len(SKILLS) + "|")
    for step in STEPS:
        gains = [[t[step][skill] - a[step][skill] for t, a in zip(together, alone[role])] for role, skill in SKILLS.items()]
        print(f"| {DEBATES * step:,} | " + " | ".join(interval(g) for g in gains) + " |")


if __name__ == "__main__":
    main()
