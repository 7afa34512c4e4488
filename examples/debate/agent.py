"""A debate of two agents with a model each. The proposer answers a question, an opponent that always lies gives another answer, and the
verifier picks one of the two without knowing whose it is. The standard library is all that this needs.
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

    def reply(self, env, model, content):
        url = urlsplit(env["OPENAI_BASE_URL"])
        if url.netloc != self.host:
            self.host, self.connection = url.netloc, http.client.HTTPConnection(url.netloc)
        body = json.dumps({"model": model, "messages": [{"role": "user", "content": content}], "max_tokens": 4})
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


def debate(models, task, env):
    """Returns the rewards: whether the right answer was picked, from which both learn, and whether it was proposed."""
    question, right = task["question"], task["answer"]
    digits = [c for c in question if c.isdecimal()]
    proposal = models.reply(env, "proposer", question)
    if proposal not in digits:
        return {"answer": 0, "proposal": 0}
    candidates = [proposal, random.choice([d for d in digits if d not in (proposal, right)])]  # the opponent lies
    random.shuffle(candidates)
    picked = models.reply(env, "verifier", f"{' or '.join(candidates)} {question}")
    return {"answer": int(picked in candidates and picked == right), "proposal": int(proposal == right)}


if __name__ == "__main__":
    models = Models()
    for line in sys.stdin:
        attempt = json.loads(line)
        try:
            result = {"rewards": debate(models, attempt["task"], attempt["env"])}
        except Exception as error:  # the attempt has failed; the next one may not
            result = {"error": repr(error)}
        print(json.dumps(result), flush=True)
