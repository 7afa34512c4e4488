"""Runs the Python package's APO class on a task, as its Trainer does it, and prints one line of JSON."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import random
import time
from typing import Any

from agentlightning import OtelTracer, PromptTemplate, TraceToMessages, Trainer, prompt_rollout
from agentlightning.algorithm.apo.apo import APO
from agentlightning.runner import LitAgentRunner
from openai import AsyncOpenAI


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", required=True, help="base URL of the model server")
    parser.add_argument("--prompt", required=True)
    parser.add_argument("--port", type=int, required=True, help="of the Trainer's store")
    for name in ("seed", "runners", "beam", "branch", "rounds", "gradient-batch", "val-batch", "train", "val"):
        parser.add_argument(f"--{name}", type=int, required=True)
    return parser.parse_args()


class Timed(APO[Any]):
    """The class, and how long it takes once its runners are there."""

    runners = 0
    seconds = 0.0

    async def run(self, *args: Any, **kwargs: Any) -> None:
        store = self.get_store()
        while len(await store.query_workers()) < self.runners:
            await asyncio.sleep(0.05)
        began = time.monotonic()
        await super().run(*args, **kwargs)
        self.seconds = time.monotonic() - began


def main() -> None:
    args = arguments()
    logging.disable(logging.WARNING)
    random.seed(args.seed)
    client = AsyncOpenAI(base_url=args.models, api_key="none", max_retries=0)

    @prompt_rollout
    async def agent(task: dict[str, str], prompt_template: PromptTemplate) -> float:
        request = prompt_template.template.format(question=task["question"])
        reply = await client.chat.completions.create(model="agent", messages=[{"role": "user", "content": request}])
        return float(reply.choices[0].message.content or "nan")

    algorithm = Timed(
        AsyncOpenAI(base_url=args.models, api_key="none", max_retries=0),
        gradient_model="critic",
        apply_edit_model="editor",
        gradient_batch_size=args.gradient_batch,
        val_batch_size=args.val_batch,
        beam_width=args.beam,
        branch_factor=args.branch,
        beam_rounds=args.rounds,
    )
    algorithm.runners = args.runners
    tracer = OtelTracer()
    trainer = Trainer(
        algorithm=algorithm,
        n_runners=args.runners,
        port=args.port,
        tracer=tracer,
        adapter=TraceToMessages(),
        initial_resources={"main": PromptTemplate(template=args.prompt, engine="f-string")},
        # A tenth of the default: an idle runner is not what is to be measured.
        runner=LitAgentRunner(tracer, poll_interval=0.5, interval_jitter=0.1),
    )
    tasks = [{"question": f"number {i + 1}"} for i in range(max(args.train, args.val))]
    trainer.fit(agent, train_dataset=tasks[: args.train], val_dataset=tasks[: args.val])
    print(json.dumps({"prompt": algorithm.get_best_prompt().template, "seconds": algorithm.seconds}))


if __name__ == "__main__":
    main()
