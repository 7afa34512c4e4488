"""Makes batch.json: what Agent-lightning's daemon makes of triplets.

    pip install --no-deps agentlightning==0.3.0 numpy
    python batch.py "$(python -c 'import agentlightning, os; print(os.path.dirname(agentlightning.__file__))')" > batch.json

It runs the code of agentlightning/verl/daemon.py as it is, over NumPy instead of torch, tensordict and verl, of which it uses
arrays only.
"""

import ast
import json
import sys
import types
from typing import *  # noqa: F403  the daemon's annotations

import numpy as np


class Tensor(np.ndarray):
    def to(self, _):
        return self

    def contiguous(self):
        return self


def tensor(values, dtype):
    return np.array(values, dtype=dtype).view(Tensor)


torch = types.SimpleNamespace(
    bfloat16=np.float32, device=None, Tensor=Tensor,
    LongTensor=lambda v: tensor(v, np.int64), BoolTensor=lambda v: tensor(v, bool), tensor=lambda v, dtype: tensor(v, dtype),
    cat=lambda parts, dim: np.concatenate(parts, axis=dim).view(Tensor), cumsum=lambda v, dim: np.cumsum(v, axis=dim),
    clamp=lambda v, min: np.maximum(v, min), zeros_like=lambda v, dtype: np.zeros(v.shape, dtype).view(Tensor),
    arange=np.arange, argmax=lambda v, dim: np.argmax(v, axis=dim),
)


class Proto:
    def __init__(self, batch):
        self.batch, self.non_tensor_batch = batch, {}


def daemon(package):
    """The functions and the method of the daemon that make a batch."""
    tree = ast.parse(open(package + "/verl/daemon.py").read())
    keep = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name in ("get_left_padded_ids_and_attention_mask", "get_right_padded_ids_and_attention_mask", "ids_startswith")]
    for n in tree.body:
        if isinstance(n, ast.ClassDef):
            keep += [m for m in n.body if isinstance(m, ast.FunctionDef) and m.name == "get_train_data_batch"]
    names = {**globals(), "TensorDict": lambda d, batch_size: d, "DataProto": Proto}
    exec(compile(ast.Module(keep, []), "daemon.py", "exec"), names)
    return names["get_train_data_batch"]


def batch(make, level, rollouts, prompt, response):
    def triplet(t):
        return types.SimpleNamespace(prompt={"token_ids": t[0]}, response={"token_ids": t[1]})

    self = types.SimpleNamespace(
        is_train=True, _total_tasks_queued=len(rollouts), pad_token_id=9, _use_mrope=False, trace_aggregator={"level": level}, tokenizer=None,
        _completed_rollouts_v0={r["id"]: types.SimpleNamespace(rollout_id=r["id"], final_reward=r["reward"], triplets=[triplet(t) for t in r["calls"]]) for r in rollouts},
        _task_id_to_original_sample={r["id"]: {"data_id": r["group"]} for r in rollouts}, _fillna_reward=lambda r: r.final_reward,
    )
    proto, _ = make(self, prompt, response, None, 1)
    out = {k: np.asarray(v).tolist() for k, v in proto.batch.items()}
    return {**out, **{k: v.tolist() for k, v in proto.non_tensor_batch.items()}}


if __name__ == "__main__":
    make = daemon(sys.argv[1])
    rollouts = [
        {"id": "r1", "group": "a", "reward": 0.5, "calls": [[[1, 2, 3], [4, 5]], [[1, 2, 3, 4, 5, 6, 7], [8]], [[1, 2], [3]]]},
        {"id": "r2", "group": "a", "reward": -1.0, "calls": [[[1, 2, 3], [4, 5, 6, 7, 8, 1, 2, 3, 4]]]},
        {"id": "r3", "group": "b", "reward": 0.0, "calls": [[[1, 2, 3, 4, 5, 6, 7, 8], [1]]]},
    ]
    cases = [
        {"level": level, "prompt_length": p, "response_length": r, "rollouts": rollouts, "want": batch(make, level, rollouts, p, r)}
        for level in ("transition", "trajectory") for p, r in ((8, 9), (5, 6))
    ]
    print(json.dumps(cases, separators=(",", ":")))
