"""Drives Tinker's SDK by the lines of its input: each is a call as JSON, and
each answer is a line of JSON on its output.

usage: sdk.py BASE_URL"""

import json
import logging
import os
import sys
import warnings

import tinker
from tinker import types

logging.disable(logging.CRITICAL)
warnings.simplefilter("ignore", FutureWarning)  # of calls that go by another name in newer versions


def done(x):
    """The result of what is a future in some versions."""
    return x.result() if hasattr(x, "result") else x


def datum(d):
    inputs = {"target_tokens": types.TensorData(data=d["targets"], dtype="int64", shape=[len(d["targets"])])}
    for name in ("weights", "logprobs", "advantages"):
        if d.get(name) is not None:
            inputs[name] = types.TensorData(data=d[name], dtype="float32", shape=[len(d[name])])
    return types.Datum(model_input=types.ModelInput.from_ints(d["input"]), loss_fn_inputs=inputs)


class Calls:
    def __init__(self, url):
        self.service = tinker.ServiceClient(base_url=url)
        self.rest = self.service.create_rest_client()
        self.objects = []

    def keep(self, x):
        self.objects.append(x)
        return len(self.objects) - 1

    def version(self, _):
        return {"version": tinker.__version__}

    def capabilities(self, _):
        return {"models": [m.model_name for m in self.service.get_server_capabilities().supported_models]}

    def create(self, c):
        model = done(self.service.create_lora_training_client(base_model=c["base_model"], rank=c.get("rank", 8), seed=c["seed"], **c.get("more", {})))
        return {"handle": self.keep(model)}

    def create_from_state(self, c):
        make = self.service.create_training_client_from_state
        if c["optimizer"]:
            make = self.service.create_training_client_from_state_with_optimizer
        return {"handle": self.keep(done(make(c["path"])))}

    def info(self, c):
        info = done(self.objects[c["handle"]].get_info())
        return {"model_id": info.model_id, "model_name": info.model_data.model_name, "is_lora": info.is_lora, "lora_rank": info.lora_rank}

    def forward(self, c):
        model = self.objects[c["handle"]]
        run = model.forward_backward if c["backward"] else model.forward
        out = run([datum(d) for d in c["data"]], c["loss"], loss_fn_config=c.get("config")).result()
        return {name: [[float(x) for x in o[key].data] for o in out.loss_fn_outputs] for name, key in (("losses", "elementwise_loss"), ("logprobs", "logprobs"))}

    def step(self, c):
        out = self.objects[c["handle"]].optim_step(types.AdamParams(**c["adam"])).result()
        return {"metrics": out.metrics}

    def save_state(self, c):
        return {"path": self.objects[c["handle"]].save_state(c["name"]).result().path}

    def load_state(self, c):
        model = self.objects[c["handle"]]
        (model.load_state_with_optimizer if c["optimizer"] else model.load_state)(c["path"]).result()
        return {}

    def save_sampler(self, c):
        return {"path": self.objects[c["handle"]].save_weights_for_sampler(c["name"]).result().path}

    def publish(self, c):
        return {"handle": self.keep(done(self.objects[c["handle"]].save_weights_and_get_sampling_client()))}

    def sampler(self, c):
        return {"handle": self.keep(done(self.service.create_sampling_client(model_path=c.get("path"), base_model=c.get("base_model"))))}

    def sample(self, c):
        params = types.SamplingParams(**c["params"])
        more = {k: c[k] for k in ("include_prompt_logprobs", "topk_prompt_logprobs") if k in c}
        prompt = types.ModelInput.from_ints(c["prompt"])
        out = self.objects[c["handle"]].sample(prompt=prompt, num_samples=c["num_samples"], sampling_params=params, **more).result()
        return {
            "sequences": [{"tokens": [int(t) for t in s.tokens], "logprobs": [float(x) for x in s.logprobs], "stop_reason": s.stop_reason} for s in out.sequences],
            "prompt_logprobs": out.prompt_logprobs,
        }

    def compute_logprobs(self, c):
        out = self.objects[c["handle"]].compute_logprobs(types.ModelInput.from_ints(c["prompt"])).result()
        return {"logprobs": [None if x is None else float(x) for x in out]}

    def delete(self, c):
        done(self.rest.delete_checkpoint_from_tinker_path(c["path"]))
        return {}


def main():
    calls = Calls(sys.argv[1])
    for line in sys.stdin:
        call = json.loads(line)
        try:
            answer = getattr(calls, call.pop("call"))(call)
        except tinker.TinkerError as e:
            answer = {"error": str(e), "type": type(e).__name__, "status": getattr(e, "status_code", 0)}
        print(json.dumps(answer), flush=True)


main()
os._exit(0)  # the SDK's threads run on, and some abort a process that ends in order
