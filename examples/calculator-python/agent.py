"""An agent that answers questions such as "12 times 7" with the help of a tool. The standard library is all that it needs.

The model may reply "call 12*7": then the tool computes, its result joins the conversation, and the model replies once more. What
counts is the last reply: "ans 84".
"""

import http.client
import json
import re
import sys
from urllib.parse import urlsplit


class Model:
    """The model behind agl's proxy; the connection stays open from task to task."""

    def __init__(self):
        self.host, self.connection = None, None

    def reply(self, env, messages):
        url = urlsplit(env["OPENAI_BASE_URL"])
        if url.netloc != self.host:
            self.host, self.connection = url.netloc, http.client.HTTPConnection(url.netloc)
        body = json.dumps({"model": env["OPENAI_MODEL"], "messages": messages, "max_tokens": 14})
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


def calculate(expression):
    """The tool. It knows two numbers with +, - or * between them, and says None to anything else."""
    match = re.fullmatch(r"(\d{1,4})([-+*])(\d{1,4})", expression, re.ASCII)
    if not match:
        return None
    a, operator, b = int(match[1]), match[2], int(match[3])
    return str(a + b if operator == "+" else a - b if operator == "-" else a * b)


def solve(model, task, env):
    messages = [{"role": "user", "content": task["question"]}]
    reply = model.reply(env, messages)
    if reply.startswith("call "):
        result = calculate(reply.removeprefix("call "))
        if result is None:
            return 0  # a malformed call is the model's fault
        messages += [{"role": "assistant", "content": reply}, {"role": "tool", "content": result}]
        reply = model.reply(env, messages)
    return 1 if reply == "ans " + task["answer"] else 0


model = Model()
for line in sys.stdin:
    attempt = json.loads(line)
    try:
        result = {"reward": solve(model, attempt["task"], attempt["env"])}
    except Exception as error:  # the attempt has failed; the next one may not
        result = {"error": repr(error)}
    print(json.dumps(result), flush=True)
