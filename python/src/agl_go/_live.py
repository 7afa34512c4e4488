"""Live programs: sessions at the proxy, and rewards that arrive later."""

from __future__ import annotations

import datetime
import http.client
import json
import os
import secrets
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Mapping, Optional, Union

from agl_go._result import Reward, reward_members

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
    """Adds a reward to a rollout, at any time, even days after its end.

    The reward is a number, or a number for each dimension, as for emit_reward. It is for the whole rollout, unless one of these
    is given: `call`, the id of a model's reply; `span`, the id of any span; `turn`, a turn as the calls named it in the header
    X-Agl-Turn, whose last call is rewarded. If there are several rewards, the source decides which one counts: "user" before
    "event" before "program" before all others, and the last one of the same source.
    `at` is the time when it was earned, as a datetime or in seconds since 1970; by default it is now. With an `idempotency_key`,
    such as the id of the application's event, repeated calls add the reward once.

    The store is at `store` or AGL_STORE_URL. Its key, `key` or AGL_TOKEN, needs the scope ingest or live.
    Raises ValueError and TypeError for an invalid reward, and LiveError if the store refuses it or does not answer.
    """
    body = _reward_body(reward, primary, source, message, idempotency_key, call=call, span=span, turn=turn)
    if at is not None:
        body["at"] = at.timestamp() if isinstance(at, datetime.datetime) else float(at)
    request(base_url(store, "AGL_STORE_URL"), f"/v1/agl/rollouts/{urllib.parse.quote(rollout_id, safe='')}/rewards", body, key)


def _reward_body(
    reward: Reward, primary: Optional[str], source: str, message: str, idempotency_key: Optional[str], **target: Optional[str]
) -> dict[str, Any]:
    """The request that adds a reward. target says for what it is."""
    members = reward_members(reward, primary)
    return {
        **({"value": members["reward"]} if "reward" in members else {"dimensions": members["rewards"]}),
        "source": source,
        "message": message,
        "idempotency_key": idempotency_key or secrets.token_hex(16),
        **{name: value for name, value in target.items() if value is not None},
    }


def base_url(given: Optional[str], variable: str) -> str:
    """The URL of a server: the given one, or that of an environment variable."""
    url = given or os.environ.get(variable)
    if not url:
        raise LiveError(f"no URL is given, and {variable} is not set")
    if not url.startswith(("http://", "https://")):
        raise LiveError(f"the URL is {url.rpartition('@')[2]!r}, must begin with http:// or https://, such as http://127.0.0.1:4747")
    return url.rstrip("/")


def request(base: str, path: str, body: Mapping[str, Any], key: Optional[str], headers: Mapping[str, str] = {}) -> Any:
    """Posts a JSON body and returns the answer. It may send the body several times. Raises LiveError."""
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
        except (OSError, http.client.HTTPException) as err:
            if not left:
                raise LiveError(f"{base} does not answer: {err}") from err
        except json.JSONDecodeError as err:
            raise LiveError(f"{base}{path} answers no JSON, so it is another server: {err.doc[:200]!r}") from None
        time.sleep(0.5 * (TRIES - left))
    raise AssertionError("unreachable")


class Session:
    """A session of a live program. Calls of models at `base_url` with `key` are recorded as one rollout."""

    def __init__(self, proxy: str, session_id: str, key: str, base_url: str, version: Optional[str]) -> None:
        self._proxy = proxy
        self.session_id = session_id
        """The id of its rollout, for late_reward."""
        self.key = key
        """For the SDK's api_key."""
        self.base_url = base_url
        """For the OpenAI SDK; it ends in /v1."""
        self.version = version
        """The id of the session's resources; None if it has none."""
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
        """Rewards the whole session, a model call by the id of its reply, or a turn; also after its end. See late_reward."""
        body = _reward_body(reward, primary, source, message, idempotency_key, call=call, turn=turn)
        request(self._proxy, f"/v1/agl/sessions/{urllib.parse.quote(self.session_id, safe='')}/reward", body, self.key)

    def end(self) -> None:
        """Ends the session. A second call does nothing. Raises LiveError if the proxy does not answer."""
        if self._ended:
            return
        try:
            request(self._proxy, f"/v1/agl/sessions/{urllib.parse.quote(self.session_id, safe='')}/end", {}, self.key)
        except LiveError as err:
            if "answers 410" not in str(err):  # the session has ended already, because it was idle or the request was repeated
                raise
        self._ended = True

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
    """Starts a session at agl's proxy. It ends at the end of the with statement, by end(), or when it is idle::

        with agl_go.session(user="ada", proxy="http://127.0.0.1:4748") as s:
            client = OpenAI(base_url=s.base_url, api_key=s.key)
            ...
            s.reward(1.0, source="user")

    The proxy is at `proxy` or AGL_PROXY_URL. Its key, `key` or AGL_TOKEN, needs the scope live. `resources` is the id of the
    session's resources, by default the latest; `metadata` is added to its rollout; `idle_timeout` is in seconds, by default the
    proxy's. Raises LiveError if the proxy refuses the session or does not answer.
    """
    base = base_url(proxy, "AGL_PROXY_URL")
    given = {"user": user, "metadata": metadata, "resources": resources, "idle_timeout": idle_timeout}
    once = {"Idempotency-Key": secrets.token_hex(16)}  # a repeat gets the session that the first request has started
    answer = request(base, "/v1/agl/sessions", {k: v for k, v in given.items() if v is not None}, key, once)
    return Session(base, answer["session_id"], answer["key"], answer["base_url"], answer.get("version"))
