"""Writes the data of this example, the same each time: questions to learn from, questions with other numbers to see what was
learned, and demonstrations that are mostly wrong, for the small model to imitate before it learns from rewards."""

import json
import random

FORMS = {
    "plus": ("{a} plus {b}", "+"),
    "add": ("add {a} and {b}", "+"),
    "minus": ("{a} minus {b}", "-"),
    "times": ("{a} times {b}", "*"),
    "take": ("take {b} from {a}", "-"),
}
GUESSES = 0.67  # of the demonstrations answer at once, without the tool, and are off by a little
SWAPS = 0.20  # of the others take the numbers of "take B from A" as they come
SUMS = 0.20  # of the others add where they should multiply


def compute(a, operator, b):
    return {"+": a + b, "-": a - b, "*": a * b}[operator]


def tasks(rng, pairs, count):
    """Every form equally often, no question twice."""
    seen = {}
    while len(seen) < count:
        form = list(FORMS)[len(seen) % len(FORMS)]
        (a, b), (text, operator) = rng.choice(pairs), FORMS[form]
        question = text.format(a=a, b=b)
        seen.setdefault(question, {"question": question, "form": form, "answer": str(compute(a, operator, b))})
    return list(seen.values())


def demonstration(rng, pairs):
    form, (a, b) = rng.choice(list(FORMS)), rng.choice(pairs)
    text, operator = FORMS[form]
    messages = [("user", text.format(a=a, b=b))]
    if rng.random() < GUESSES:
        messages.append(("assistant", f"ans {compute(a, operator, b) + rng.randint(-10, 10)}"))
    else:
        if form == "take" and rng.random() < SWAPS:
            a, b = b, a
        elif form == "times" and rng.random() < SUMS:
            operator = "+"
        result = compute(a, operator, b)
        messages += [("assistant", f"call {a}{operator}{b}"), ("tool", str(result)), ("assistant", f"ans {result}")]
    return {"messages": [{"role": role, "content": content} for role, content in messages]}


def write(name, lines):
    with open(name, "w") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


if __name__ == "__main__":
    rng = random.Random(1)
    pairs = [(a, b) for a in range(1, 100) for b in range(1, 100)]
    rng.shuffle(pairs)
    held_out, known = pairs[: len(pairs) // 10], pairs[len(pairs) // 10 :]
    write("train.jsonl", tasks(rng, known, 3200))
    write("val.jsonl", tasks(rng, held_out, 256))
    write("demos.jsonl", (demonstration(rng, known) for _ in range(20000)))
