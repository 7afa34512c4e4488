"""Metrics of runs, for `agl runs` and the dashboard."""

from __future__ import annotations

import math
import operator
import os
import urllib.parse
from typing import Any, Mapping, Optional, SupportsIndex

from agl_go._live import LiveError, base_url, request

_started: set[tuple[str, str]] = set()


def log_metrics(
    step: SupportsIndex,
    values: Mapping[str, Any],
    *,
    run: Optional[str] = None,
    name: str = "",
    algorithm: str = "",
    store: Optional[str] = None,
    key: Optional[str] = None,
) -> None:
    """Adds the metrics of a step to a run. The first call starts the run, with `name` and `algorithm`.

    Values are whatever float() accepts; those of a nested mapping are named by their path, such as validation/loss. Metrics that
    the step already has are replaced, so a run that resumes may repeat steps. NaN and infinities are left out.

    The run is `run`, an id that you choose, such as "sweep-7", or AGL_RUN_ID, which `agl train` sets for the command that is
    its algorithm. The store is at `store` or AGL_STORE_URL. Its key, `key` or AGL_TOKEN, needs the scope train.
    Raises ValueError and TypeError for a value that is not a number, and LiveError if the store refuses it or does not answer.
    """
    flat: dict[str, float] = {}
    _flatten(flat, "", values)
    run, base = _run(run), base_url(store, "AGL_STORE_URL")
    if (base, run) not in _started:
        request(base, "/v1/agl/runs", {"run_id": run, "name": name, "algorithm": algorithm}, key)
        _started.add((base, run))
    if flat:
        number = operator.index(step) if hasattr(step, "__index__") else step  # an integer of NumPy has no JSON form
        request(base, _path(run) + "/metrics", {"step": number, "values": flat}, key)


def end_run(
    status: str = "finished", *, error: str = "", run: Optional[str] = None, store: Optional[str] = None, key: Optional[str] = None
) -> None:
    """Ends a run as finished, interrupted or failed. A run of `agl train` ends by itself. See log_metrics for the arguments.

    Raises LiveError if the store refuses it or does not answer.
    """
    run, base = _run(run), base_url(store, "AGL_STORE_URL")
    request(base, _path(run), {"status": status, "error": error}, key)
    _started.discard((base, run))


def _run(given: Optional[str]) -> str:
    run = given or os.environ.get("AGL_RUN_ID")
    if not run:
        raise LiveError("no run is given, and AGL_RUN_ID is not set")
    return run


def _path(run: str) -> str:
    return "/v1/agl/runs/" + urllib.parse.quote(run, safe="")


def _flatten(to: dict[str, float], path: str, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        if isinstance(value, Mapping):
            _flatten(to, f"{path}{name}/", value)
        elif math.isfinite(number := float(value)):
            to[f"{path}{name}"] = number
