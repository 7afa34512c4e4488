"""An agent that is a LangChain chain. ChatOpenAI finds the model in its environment; nothing in it is about training."""

import json
import os
import sys

from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_openai import ChatOpenAI


def solve(task: dict) -> float:
    model = ChatOpenAI(model=os.environ["OPENAI_MODEL"], base_url=os.environ["OPENAI_BASE_URL"], max_tokens=4)
    chain = ChatPromptTemplate.from_messages([("human", "largest of {a} {b} {c}?")]) | model | StrOutputParser()
    a, b, c = (word for word in task["question"].rstrip("?").split() if word.isdigit())
    return 1.0 if chain.invoke({"a": a, "b": b, "c": c}) == task["answer"] else 0.0


# Importing LangChain takes seconds, so the process is kept: keepalive in agl.yaml.
for line in sys.stdin:
    attempt = json.loads(line)
    os.environ.update(attempt["env"])
    try:
        result = {"reward": solve(attempt["task"])}
    except Exception as error:
        result = {"error": repr(error)}
    print(json.dumps(result), flush=True)
