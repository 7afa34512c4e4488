"""An agent of the Python package: it doubles a number, and stumbles over 3."""

import agl_go

number = agl_go.task()["number"]
if number == 3:
    agl_go.error("there is no double of 3")
else:
    agl_go.emit_reward({"accuracy": number % 2, "brevity": 0.25})
