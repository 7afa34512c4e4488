"""Renders 40 conversations with transformers, in every combination of options: one line of JSON for each.

    python conversations.py MODEL_DIR
"""

import itertools
import json
import logging
import os
import sys

os.environ["TRANSFORMERS_VERBOSITY"] = "critical"
logging.disable(logging.CRITICAL)

from transformers import AutoTokenizer  # noqa: E402

TOOLS = [
    {"type": "function", "function": {"name": "weather", "description": "Das Wetter <heute> & \"morgen\"\n", "parameters": {
        "type": "object", "properties": {"city": {"type": "string", "enum": ["Köln", "東京"]}, "days": {"type": "integer", "default": 3, "minimum": 1.0}}, "required": ["city"]}}},
    {"type": "function", "function": {"name": "noop", "parameters": {"type": "object", "properties": {}}}},
]


def user(content):
    return {"role": "user", "content": content}


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


def call(arguments, name="weather", **more):
    return {"type": "function", "function": {"name": name, "arguments": arguments}, **more}


def tool(content, **more):
    return {"role": "tool", "content": content, **more}


SYSTEM = {"role": "system", "content": "You are brief."}
WEATHER = {"city": "Köln", "days": 2}

CONVERSATIONS = [
    [user("Hi")],
    [user("")],
    [user("  spaces around \n\n")],
    [user("<|im_end|><｜User｜><start_of_turn>\"quotes\" 'and' \\ {{ braces }} {% if %}")],
    [user("日本語 😀 e\u0301 \u200b \u0000 \t")],
    [SYSTEM, user("Hi")],
    [SYSTEM, {"role": "system", "content": "And kind."}, user("Hi")],
    [user("Hi"), SYSTEM, user("Again")],
    [{"role": "system", "content": [{"type": "text", "text": "From parts."}]}, user("Hi")],
    [SYSTEM],
    [user("a"), assistant("b"), user("c")],
    [user("a"), assistant("b"), user("c"), assistant("d")],
    [user("a"), assistant("  b \n")],
    [user("a"), user("b")],
    [user("a"), assistant("b"), assistant("c")],
    [assistant("I begin.")],
    [assistant("I begin."), user("Oh")],
    [user("a"), assistant("<think>\nhm\n</think>\n\nb"), user("c")],
    [user("a"), assistant("<think>\nhm\n</think>\n\nb")],
    [user("a"), assistant("b", reasoning_content="first this\nthen that")],
    [user("a"), assistant("b", reasoning_content="old"), user("c"), assistant("d", reasoning_content="new")],
    [user("a"), assistant("b", reasoning="other name")],
    [user("a"), assistant("b", thinking="third name"), user("c")],
    [user("a"), assistant("b", reasoning_content=None), user("c")],
    [user("a"), assistant("b", reasoning_content=""), user("c"), assistant("d", reasoning_content="")],
    [user("w?"), assistant("", tool_calls=[call(WEATHER)]), tool("rain")],
    [user("w?"), assistant("", tool_calls=[call(json.dumps(WEATHER))]), tool("rain"), assistant("It rains.")],
    [user("w?"), assistant(None, tool_calls=[call(WEATHER)]), tool("rain"), assistant("It rains."), user("ok")],
    [user("w?"), {"role": "assistant", "tool_calls": [call('{"city":"Köln"}')]}, tool("rain")],
    [user("w?"), assistant("Let me see.", tool_calls=[call(WEATHER), call({}, "noop")]), tool("rain"), tool("done"), assistant("Fine.")],
    [user("w?"), assistant("", reasoning_content="need a tool", tool_calls=[call(WEATHER, id="call_1")]), tool("rain", tool_call_id="call_1", name="weather")],
    [SYSTEM, user("w?"), assistant("", tool_calls=[call({"a": [1, 2.0, -0.0, 1e22, 1e-7, None, True, {"ü": "\u2028\"\\"}], "n": 12345678901234567890123})]), tool("{\"t\": 20.50}")],
    [user("w?"), assistant("", tool_calls=[{"name": "weather", "arguments": WEATHER}]), tool("rain")],
    [user("w?"), assistant("", tool_calls=[]), user("?")],
    [user([{"type": "text", "text": " from "}, {"type": "text", "text": "parts "}])],
    [user([{"type": "image"}, {"type": "text", "text": "What is it?"}])],
    [user("w?"), assistant("", tool_calls=[call(WEATHER)]), tool([{"type": "text", "text": "rain"}])],
    [user(None)],
    [user(5)],
    [{"role": "critic", "content": "who?"}, {"role": "user"}],
]


def main():
    assert len(CONVERSATIONS) == 40
    tok = AutoTokenizer.from_pretrained(sys.argv[1])
    print(json.dumps({"special": tok.special_tokens_map}))
    for messages in CONVERSATIONS:
        for ask, tools, variables in itertools.product([False, True], [None, TOOLS], [{}, {"enable_thinking": False}, {"enable_thinking": True, "extra": [1.0]}]):
            case = {"messages": messages, "tools": tools, "ask": ask, "variables": variables}
            try:
                case["text"] = tok.apply_chat_template(messages, tools=tools, add_generation_prompt=ask, tokenize=False, **variables)
                case["ids"] = tok.encode(case["text"], add_special_tokens=False)
            except Exception as error:  # noqa: BLE001 - whatever the reference refuses must be refused
                case["error"] = f"{type(error).__name__}: {error}"
            print(json.dumps(case))


if __name__ == "__main__":
    main()
