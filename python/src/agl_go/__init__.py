"""agl for Python: the program as a wheel, and what an agent in Python needs to be trained by it.

The program is the script ``agl-go``, or ``python -m agl_go``. An agent that ``agl-go train`` or ``agl-go runner`` starts
finds its task, its model and its prompts here and says how well it went::

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

`serve` does the same for a process that is kept for many tasks.

Everything here reads the environment variables and files of the attempt, which any program may read itself; there is no
connection to anything, and nothing runs in the background.
"""

from agl_go._attempt import LLM, NoAttemptError, ResourceError, Rollout, llm, prompt, resources, rollout, task
from agl_go._result import Reward, emit_reward, error
from agl_go._serve import Handler, serve

__all__ = [
    "LLM",
    "Handler",
    "NoAttemptError",
    "ResourceError",
    "Reward",
    "Rollout",
    "emit_reward",
    "error",
    "llm",
    "prompt",
    "resources",
    "rollout",
    "serve",
    "task",
]
