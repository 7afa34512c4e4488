"""Live traffic: rewards that come after the program that earned them has gone on."""

from __future__ import annotations

import datetime
import json
import os
import secrets
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Mapping, Optional, Union

from agl_go._result import Reward, said

TRIES = 5
TIMEOUT_SECONDS = 60.0


class LiveError(RuntimeError):
    """The server refused a request, or did not answer."""


def late_reward(
    rollout_id: str,
    reward: Reward,
    *,
    primary: Optional[str] = None,
    call: Optional[str] = None,
    span: Optional[str] = None,
    turn: Optional[str] = None,
    source: str = "event",
    message: str = "",
    at: Union[None, float, datetime.datetime] = None,
    idempotency_key: Optional[str] = None,
    store: Optional[str] = None,
    key: Optional[str] = None,
) -> None:
    """Adds a reward to a rollout, at any time: days after its end, too.

    The reward is a number, or one for each dimension, of which algorithms learn from the primary one, as with emit_reward. It is
    for the whole rollout, unless `call` names a model call by the id of its reply, `span` any span by its id, or `turn` the last
    call of a turn, as the header X-Agl-Turn of the calls named it. Of several rewards that with the highest source counts ("user", then "event", then "program", then all others), of equals the last.
    `at` is when it was earned, now by default. With an `idempotency_key` of the application's own, such as the id of the event,
    the reward is added once, however often this is called.

    The store is at `store` or AGL_STORE_URL. Its key, `key` or AGL_TOKEN, needs the scope ingest, or live.
    Raises ValueError and TypeError for what is no reward, and LiveError when the store refuses it or does not answer.
    """
    news = said(reward, primary)
    body: dict[str, Any] = {"value": news["reward"]} if "reward" in news else {"dimensions": news["rewards"]}
    body.update(source=source, message=message, idempotency_key=idempotency_key or secrets.token_hex(16))
    if call is not None:
        body["call"] = call
    if span is not None:
        body["span"] = span
    if turn is not None:
        body["turn"] = turn
    if at is not None:
        body["at"] = at.timestamp() if isinstance(at, datetime.datetime) else float(at)
    request(_base(store, "AGL_STORE_URL"), f"/v1/agl/rollouts/{urllib.parse.quote(rollout_id, safe='')}/rewards", body, key)


def _base(given: Optional[str], variable: str) -> str:
    url = given or os.environ.get(variable)
    if not url:
        raise LiveError(f"no URL is given, and {variable} is not set")
    return url.rstrip("/")


def request(base: str, path: str, body: Mapping[str, Any], key: Optional[str], headers: Mapping[str, str] = {}) -> Any:
    """Posts a body that may be sent again, and returns the answer."""
    parts = urllib.parse.urlsplit(base)
    key = key or os.environ.get("AGL_TOKEN") or parts.password
    if parts.username is not None:
        base = urllib.parse.urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    all_headers = {"Content-Type": "application/json", **headers}
    if key:
        all_headers["Authorization"] = "Bearer " + key
    data = json.dumps(body, allow_nan=False).encode()
    for left in reversed(range(TRIES)):
        try:
            with urllib.request.urlopen(urllib.request.Request(base + path, data, all_headers), timeout=TIMEOUT_SECONDS) as answer:
                return json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as err:
            with err:
                text = err.read(4096).decode("utf-8", "replace")
            if err.code not in (429, 502, 503, 504) or not left:
                raise LiveError(f"{base}{path} answers {err.code}: {text}") from None
        except OSError as err:
            if not left:
                raise LiveError(f"{base} does not answer: {err}") from err
        time.sleep(0.5 * (TRIES - left))
    raise AssertionError("unreachable")


class Session:
    """A session of a live program: calls of models at `base_url` with `key` are recorded as one rollout."""

    def __init__(self, proxy: str, session_id: str, key: str, base_url: str, version: Optional[str]) -> None:
        self._proxy = proxy
        self.session_id = session_id
        """The id of its rollout, for late_reward."""
        self.key = key
        """For the SDK's api_key."""
        self.base_url = base_url
        """For the OpenAI SDK; it ends in /v1."""
        self.version = version
        """The id of the resources that the session runs with, if there are any."""
        self._ended = False

    def reward(
        self,
        reward: Reward,
        *,
        primary: Optional[str] = None,
        call: Optional[str] = None,
        turn: Optional[str] = None,
        source: str = "",
        message: str = "",
        idempotency_key: Optional[str] = None,
    ) -> None:
        """Rewards the whole session, the model call whose reply has the id `call`, or a `turn`; also after its end. See late_reward."""
        news = said(reward, primary)
        body: dict[str, Any] = {"value": news["reward"]} if "reward" in news else {"dimensions": news["rewards"]}
        body.update(source=source, message=message, idempotency_key=idempotency_key or secrets.token_hex(16))
        if call is not None:
            body["call"] = call
        if turn is not None:
            body["turn"] = turn
        request(self._proxy, f"/v1/agl/sessions/{urllib.parse.quote(self.session_id, safe='')}/reward", body, self.key)

    def end(self) -> None:
        """Ends the session. Ending it again does nothing."""
        if self._ended:
            return
        self._ended = True
        try:
            request(self._proxy, f"/v1/agl/sessions/{urllib.parse.quote(self.session_id, safe='')}/end", {}, self.key)
        except LiveError as err:
            if "answers 410" not in str(err):  # it was idle, or its end was repeated
                raise

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


def session(
    *,
    user: Optional[str] = None,
    metadata: Optional[Mapping[str, Any]] = None,
    resources: Optional[str] = None,
    idle_timeout: Optional[float] = None,
    proxy: Optional[str] = None,
    key: Optional[str] = None,
) -> Session:
    """Starts a session at agl's proxy. It ends with the with statement, by end(), or when it is idle::

        with agl_go.session(user="ada", proxy="http://127.0.0.1:4748") as s:
            client = OpenAI(base_url=s.base_url, api_key=s.key)
            ...
            s.reward(1.0, source="user")

    The proxy is at `proxy` or AGL_PROXY_URL. Its key, `key` or AGL_TOKEN, needs the scope live. `resources` is the id of the
    resources to run with, by default the latest; `idle_timeout` is in seconds. Raises LiveError when the proxy refuses it.
    """
    base = _base(proxy, "AGL_PROXY_URL")
    given = {"user": user, "metadata": metadata, "resources": resources, "idle_timeout": idle_timeout}
    answer = request(base, "/v1/agl/sessions", {k: v for k, v in given.items() if v is not None}, key)
    return Session(base, answer["session_id"], answer["key"], answer["base_url"], answer.get("version"))
