"""agl for Python: the program agl as a wheel, and a library for the agents that it trains.

The program is the script ``agl-go``, or ``python -m agl_go``. With this package an agent that ``agl-go train`` or
``agl-go runner`` has started gets its task, its model and its prompts, and reports its reward::

    import agl_go
    from openai import OpenAI

    task = agl_go.task()
    llm = agl_go.llm()
    client = OpenAI(base_url=llm.base_url, api_key=llm.api_key)
    reply = client.chat.completions.create(
        model=llm.model,
        messages=[
            {"role": "system", "content": agl_go.prompt("system")},
            {"role": "user", "content": task["question"]},
        ],
        **llm.sampling_parameters,
    )
    agl_go.emit_reward(reply.choices[0].message.content == task["answer"])

`serve` runs an agent in one process for many tasks. `session` and `late_reward` are for live programs, `log_metrics` for
algorithms of your own.

The package reads the environment variables and files of the attempt, which any program can read itself. Each emission is one
request to the proxy of the attempt's model; nothing runs in the background.
"""

from agl_go._attempt import LLM, NoAttemptError, ResourceError, Rollout, llm, prompt, resources, rollout, task
from agl_go._emit import EmitError, emit_exception, emit_message, emit_object, emit_reward
from agl_go._live import LiveError, Session, late_reward, session
from agl_go._result import Reward, error
from agl_go._runs import end_run, log_metrics
from agl_go._serve import Handler, serve

__all__ = [
    "LLM",
    "EmitError",
    "Handler",
    "LiveError",
    "NoAttemptError",
    "ResourceError",
    "Reward",
    "Rollout",
    "Session",
    "emit_exception",
    "emit_message",
    "emit_object",
    "emit_reward",
    "end_run",
    "error",
    "late_reward",
    "llm",
    "log_metrics",
    "prompt",
    "resources",
    "rollout",
    "serve",
    "session",
    "task",
]
