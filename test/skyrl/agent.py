"""An agent that asks a model to shout: its reward is the share of capitals in the reply."""

import json
import sys
import urllib.request
from string import ascii_uppercase


def ask(env, question):
    body = {
        "model": env["OPENAI_MODEL"],
        "messages": [{"role": "user", "content": question}],
        "max_tokens": 8,
        # A seed makes the run repeatable.
        "seed": int(env["AGL_SEED"]),
    }
    request = urllib.request.Request(
        env["OPENAI_BASE_URL"] + "/chat/completions",
        data=json.dumps(body).encode(),
        headers={"Authorization": "Bearer " + env["OPENAI_API_KEY"], "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as response:
        return json.load(response)["choices"][0]["message"]["content"]


def solve(task, env):
    reply = ask(env, task["question"])
    return sum(c in ascii_uppercase for c in reply) / max(1, len(reply))


for line in sys.stdin:
    attempt = json.loads(line)
    try:
        result = {"reward": solve(attempt["task"], attempt["env"])}
    except Exception as error:  # the attempt has failed; the next one may not
        result = {"error": repr(error)}
    print(json.dumps(result), flush=True)
