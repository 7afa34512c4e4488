"""An agent that asks a model which of three digits is the largest.

agl keeps this program running: a line of JSON on standard input for each task,
a line with the reward on standard output. Nothing here needs to be installed.
"""

import json
import sys
import urllib.request


def ask(env, question):
    """Asks the model behind agl's proxy, which records the call with its tokens."""
    body = {
        "model": env["OPENAI_MODEL"],
        "messages": [{"role": "user", "content": question}],
        "max_tokens": 4,
        # With the seed that agl chose for this attempt, the same run gives the same result again.
        "seed": json.loads(env.get("AGL_SEED", "null")),
    }
    request = urllib.request.Request(
        env["OPENAI_BASE_URL"] + "/chat/completions",
        data=json.dumps(body).encode(),
        headers={
            "Authorization": "Bearer " + env["OPENAI_API_KEY"],
            "Content-Type": "application/json",
        },
    )
    with urllib.request.urlopen(request) as response:
        return json.load(response)["choices"][0]["message"]["content"]


def solve(task, env):
    """Runs one task and returns its reward: 1 is right, 0 is wrong."""
    return 1 if ask(env, task["question"]) == task["answer"] else 0


for line in sys.stdin:
    attempt = json.loads(line)
    try:
        result = {"reward": solve(attempt["task"], attempt["env"])}
    except Exception as error:  # the attempt has failed; the next one may not
        result = {"error": repr(error)}
    print(json.dumps(result), flush=True)
