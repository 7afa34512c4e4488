"""Asks the model one question, and is rewarded for the right answer."""

import json
import os
import urllib.request

task = json.loads(os.environ["AGL_TASK"])
request = urllib.request.Request(
    os.environ["OPENAI_BASE_URL"] + "/chat/completions",
    json.dumps({"model": os.environ["OPENAI_MODEL"], "messages": [{"role": "user", "content": task["question"]}]}).encode(),
    {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ.get("OPENAI_API_KEY", "")},
)
with urllib.request.urlopen(request, timeout=60) as reply:
    answer = json.load(reply)["choices"][0]["message"]["content"]
print(json.dumps({"reward": 1.0 if answer == task["answer"] else 0.0}))
