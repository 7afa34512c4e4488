"""A trainer with the sequence of VERL in Agent-lightning, with nothing but NumPy: it serves a model, lets agents use it, fetches
what they did as the tensors of a DataProto, updates, and swaps the weights. The model is a softmax over a few answers, with one
row of logits for each question: enough to learn, and small enough to read.
"""

import http.server
import io
import json
import os
import threading
import urllib.request

import numpy as np

STEPS, PROMPTS, SAMPLES, RATE = 8, 4, 8, 16.0
ANSWERS = ["Paris", "Rome", "Madrid", "Oslo"]  # token ids 1 to 4; questions follow, 0 is padding


class Policy:
    """The weights, and how they sample."""

    def __init__(self, questions: list[str], seed: int) -> None:
        self.ids = {question: len(ANSWERS) + 1 + i for i, question in enumerate(questions)}
        self.logits = np.zeros((len(questions), len(ANSWERS)))
        self.random, self.lock = np.random.default_rng(seed), threading.Lock()

    def probabilities(self, prompt: int) -> np.ndarray:
        row = self.logits[prompt - len(ANSWERS) - 1]
        e = np.exp(row - row.max())
        return e / e.sum()

    def sample(self, question: str) -> tuple[int, int, float]:
        """The token of the prompt, that of the answer, and its log-probability."""
        with self.lock:
            prompt = self.ids[question]
            p = self.probabilities(prompt)
            token = int(self.random.choice(len(ANSWERS), p=p))
            return prompt, token + 1, float(np.log(p[token]))


def serve(policy: Policy) -> str:
    """An inference server like vLLM's: chat completions with token ids and log-probabilities."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            prompt, token, logprob = policy.sample(body["messages"][-1]["content"])
            reply = {
                "id": f"chatcmpl-{os.urandom(8).hex()}", "object": "chat.completion", "created": 0, "model": body["model"], "prompt_token_ids": [prompt],
                "choices": [{
                    "index": 0, "finish_reason": "stop", "token_ids": [token], "message": {"role": "assistant", "content": ANSWERS[token - 1]},
                    "logprobs": {"content": [{"token": ANSWERS[token - 1], "logprob": logprob, "bytes": None, "top_logprobs": []}]},
                }],
                "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
            }
            data = json.dumps(reply).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/v1"


def call(url: str, token: str, body: object = None, method: str = "") -> bytes:
    headers = {"Content-Type": "application/json", "Authorization": "Bearer " + token}
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data, headers, method=method or None), timeout=300) as reply:
        return reply.read()


def store(path: str, body: object = None) -> bytes:
    return call(os.environ["AGL_STORE_URL"] + "/v1/agl/" + path, os.environ["AGL_TOKEN"], body)


def proxy(path: str, body: object = None, method: str = "POST") -> bytes:
    return call(os.environ["AGL_PROXY_URL"] + "/admin/" + path, os.environ["AGL_PROXY_TOKEN"], body or {}, method)


def update(policy: Policy, batch: dict[str, np.ndarray]) -> float:
    """One step of the policy gradient, with the advantages of GRPO: a reward less the mean of its group, over its deviation."""
    rewards = batch["token_level_scores"].sum(axis=1)
    gradient = np.zeros_like(policy.logits)
    for uid in np.unique(batch["uid"]):
        group = batch["uid"] == uid
        advantages = (rewards[group] - rewards[group].mean()) / (rewards[group].std() + 1e-6)
        for prompt, token, old, advantage in zip(batch["prompts"][group, -1], batch["responses"][group, 0], batch["rollout_log_probs"][group, 0], advantages):
            p = policy.probabilities(prompt)
            ratio = p[token - 1] / np.exp(old)  # 1 here, as the batch is that of these weights
            assert abs(ratio - 1) < 1e-3, "the batch was sampled from other weights"
            gradient[prompt - len(ANSWERS) - 1] += ratio * advantage * (np.eye(len(ANSWERS))[token - 1] - p)
    with policy.lock:
        policy.logits += RATE * gradient / len(rewards)
    return float(rewards.mean())


def main() -> None:
    tasks = [json.loads(line) for line in open(os.environ["AGL_TRAIN_TASKS"])][:PROMPTS]
    policy = Policy([t["question"] for t in tasks], int(os.environ["AGL_SEED"]))
    url = serve(policy)
    history = []
    for step in range(1, STEPS + 1):
        # 1. The model, with its version, and calls may flow.
        proxy("models", {"models": [{"name": "bandit", "base_url": url, "version": f"step-{step}"}]}, "PUT")
        if step > 1:
            proxy("resume")
        # 2. Every task a few times, and wait for them.
        rollouts = [{"input": t, "mode": "train", "metadata": {"data_id": f"{step}-{i}"}} for i, t in enumerate(tasks) for _ in range(SAMPLES)]
        ids = [r["rollout_id"] for r in json.loads(store("queues/rollouts/enqueue", {"rollouts": rollouts}))]
        ended: set[str] = set()
        while len(ended) < len(ids):
            waiting = [i for i in ids if i not in ended]
            ended |= {r["rollout_id"] for r in json.loads(store("waits/rollouts", {"rollout_ids": waiting, "timeout": 10}))}
        # 3. Nobody calls the model while its weights change, and every call is recorded.
        proxy("pause", {"mode": "drain", "timeout_seconds": 60})
        proxy("flush", {"rollout_ids": ids})
        # 4. What they did, as the tensors of a DataProto.
        batch = np.load(io.BytesIO(store("batches", {"rollout_ids": ids, "prompt_length": 8, "response_length": 8})))
        history.append(update(policy, dict(batch)))
        print(f"step {step:2d}  reward {history[-1]:.3f}", flush=True)
    proxy("resume")
    if history[-1] < 0.9:
        raise SystemExit(f"the reward is {history[-1]:.3f} after {STEPS} steps: it has not learned")


if __name__ == "__main__":
    main()
