"""An agent that is a LangChain chain. Nothing in it is about training: agl tells it where the model is."""

import json
import sys

from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_openai import ChatOpenAI
from openai import DefaultAsyncHttpxClient, DefaultHttpxClient

# Making these takes a tenth of a second, so the chains of all attempts share them.
CONNECTIONS = {"http_client": DefaultHttpxClient(), "http_async_client": DefaultAsyncHttpxClient()}
PROMPT = ChatPromptTemplate.from_messages([("human", "largest of {a} {b} {c}?")])


def solve(task: dict, env: dict) -> float:
    model = ChatOpenAI(
        model=env["OPENAI_MODEL"],
        base_url=env["OPENAI_BASE_URL"],
        api_key=env["OPENAI_API_KEY"],
        max_tokens=4,
        **CONNECTIONS,
    )
    chain = PROMPT | model | StrOutputParser()
    a, b, c = (word for word in task["question"].rstrip("?").split() if word.isdigit())
    return 1.0 if chain.invoke({"a": a, "b": b, "c": c}) == task["answer"] else 0.0


# Importing LangChain takes seconds, so the process is kept for many attempts: keepalive in agl.yaml.
for line in sys.stdin:
    attempt = json.loads(line)
    try:
        result = {"reward": solve(attempt["task"], attempt["env"])}
    except Exception as error:
        result = {"error": repr(error)}
    print(json.dumps(result), flush=True)
