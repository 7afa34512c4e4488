"""An agent with OpenAI's SDK. It contains nothing about training; agl passes the model's address."""

import json
import sys

from openai import OpenAI


def solve(client: OpenAI, model: str, task: dict) -> float:
    completion = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": task["question"]}],
        max_tokens=4,
    )
    return 1.0 if completion.choices[0].message.content == task["answer"] else 0.0


# Importing the SDK takes a second, so one process runs many attempts (keepalive in agl.yaml). Each attempt has its own address, and
# all share connections. A process that runs one attempt would use OpenAI() and os.environ["OPENAI_MODEL"].
shared = OpenAI(base_url="http://localhost", api_key="none")
for line in sys.stdin:
    attempt = json.loads(line)
    env = attempt["env"]
    try:
        client = shared.with_options(base_url=env["OPENAI_BASE_URL"], api_key=env["OPENAI_API_KEY"])
        result = {"reward": solve(client, env["OPENAI_MODEL"], attempt["task"])}
    except Exception as error:
        result = {"error": repr(error)}
    print(json.dumps(result), flush=True)
