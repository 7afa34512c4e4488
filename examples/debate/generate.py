"""Writes the demonstrations that the small models imitate before they learn from rewards, the same each time. They only show what a reply
looks like: a proposal is nearly always to pass, and else any of the three digits, and a verdict is either of the two.
"""

import json
import random

PASSES = 0.95  # of the proposals


def conversation(rng, question):
    digits = [c for c in question if c.isdecimal()]
    if rng.random() < 0.5:
        digits = rng.sample(digits, 2)
        question = f"{' or '.join(digits)} {question}"
    elif rng.random() < PASSES:
        digits = ["?"]
    messages = [("user", question), ("assistant", rng.choice(digits))]
    return {"messages": [{"role": role, "content": content} for role, content in messages]}


if __name__ == "__main__":
    rng = random.Random(1)
    with open("../data/train.jsonl") as file:
        questions = [json.loads(line)["question"] for line in file]
    with open("demos.jsonl", "w") as file:
        file.writelines(json.dumps(conversation(rng, rng.choice(questions))) + "\n" for _ in range(4000))
