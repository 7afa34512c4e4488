"""The agent that the local controller runs: a few model calls and a reward."""

import json
import os
import time

import httpx


class Agent:
    def run(self) -> None:
        task = json.loads(os.environ["TASK"])
        if task.get("crash"):
            raise SystemExit(3)
        with httpx.Client(headers={"Authorization": "Bearer " + os.environ["AGL_KEY"]}, timeout=30) as client:
            for turn in task["turns"]:
                self.post(client, os.environ["AGL_OPENAI_BASE_URL"] + "/chat/completions", {"messages": [{"role": "user", "content": turn}]})
            self.post(client, os.environ["AGL_EVENT_URL"], {"event_type": "reward", "data": {"value": task["reward"], "source": "agent"}})

    def post(self, client: httpx.Client, url: str, body: dict) -> None:
        """Repeats what failed, as the SDKs of OpenAI do."""
        for _ in range(100):
            try:
                if client.post(url, json=body).status_code < 429:
                    return
            except httpx.HTTPError:
                pass
            time.sleep(0.1)
        raise RuntimeError("the server does not come back")
