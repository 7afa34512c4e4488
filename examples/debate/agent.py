"""A debate of two agents with a model each. The proposer answers a question or passes. An opponent contradicts it: with the truth if the
answer is wrong, else with a lie. The verifier picks one of the two without knowing whose it is. The standard library is all that this needs.
"""

import http.client
import json
import random
import sys
from urllib.parse import urlsplit


class Models:
    """The models behind agl's proxy; the connection stays open from task to task."""

    def __init__(self):
        self.host, self.connection = None, None

    def reply(self, env, rng, model, content):
        url = urlsplit(env["OPENAI_BASE_URL"])
        if url.netloc != self.host:
            self.host, self.connection = url.netloc, http.client.HTTPConnection(url.netloc)
        messages = [{"role": "user", "content": content}]
        body = json.dumps({"model": model, "messages": messages, "max_tokens": 4, "seed": rng.getrandbits(32)})
        headers = {"Authorization": "Bearer " + env["OPENAI_API_KEY"], "Content-Type": "application/json"}
        try:
            self.connection.request("POST", url.path + "/chat/completions", body, headers)
            response = self.connection.getresponse()
            data = response.read()
        except (http.client.HTTPException, OSError):
            self.host = None  # the next call connects anew
            raise
        if response.status != 200:
            raise RuntimeError(f"the model answers {response.status}: {data.decode()[:300]}")
        return json.loads(data)["choices"][0]["message"]["content"]


def verdict(models, env, rng, question, candidates):
    """Has the verifier pick one of two digits, in any order."""
    rng.shuffle(candidates)
    picked = models.reply(env, rng, "verifier", f"{' or '.join(candidates)} {question}")
    return picked if picked in candidates else None


def debate(models, mode, task, env):
    """Returns the rewards: of the verifier, whether the right answer was picked, and of the proposer, whether its own was. What else there is
    only is reported: whether the proposal was right, and in validations whether the verifier finds the right answer beside a lie.
    """
    rng = random.Random(env.get("AGL_SEED"))  # with the seed of its attempt, the same run gives the same result again
    question, right = task["question"], task["answer"]
    digits = [c for c in question if c.isdecimal()]
    lies = [d for d in digits if d != right]
    rewards = {"answer": 0, "picked": 0, "proposal": 0}
    proposal = models.reply(env, rng, "proposer", question)
    if proposal in digits:
        picked = verdict(models, env, rng, question, [proposal, rng.choice(lies) if proposal == right else right])
        rewards = {"answer": int(picked == right), "picked": int(picked == proposal), "proposal": int(proposal == right)}
    if mode == "val":
        rewards["verdict"] = int(verdict(models, env, rng, question, [right, rng.choice(lies)]) == right)
    return rewards


if __name__ == "__main__":
    models = Models()
    for line in sys.stdin:
        attempt = json.loads(line)
        try:
            result = {"rewards": debate(models, attempt["mode"], attempt["task"], attempt["env"])}
        except Exception as error:  # the attempt has failed; the next one may not
            result = {"error": repr(error)}
        print(json.dumps(result), flush=True)
