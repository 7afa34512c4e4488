"""Stand-ins for torch, tensordict and verl, as much of them as VERL's daemon uses to build a batch.

They are NumPy underneath: no arithmetic of a training step is tested here, but what arrives of it at the trainer.
"""

from __future__ import annotations

import importlib.util
import sys
import types
from pathlib import Path
from typing import Any

import agentlightning
import numpy as np
from numpy.typing import NDArray


class Tensor(np.ndarray):  # type: ignore[type-arg]
    """An array with the two methods of a tensor that arrays do not have."""

    def to(self, device: str) -> "Tensor":
        return self

    def contiguous(self) -> "Tensor":
        return self


def tensor(values: Any, dtype: Any = None) -> Tensor:
    return np.asarray(values, dtype=dtype).view(Tensor)


class DataProto:
    """A batch of tensors, and what goes with them."""

    def __init__(self, batch: dict[str, Tensor]):
        self.batch = batch
        self.non_tensor_batch: dict[str, NDArray[Any]] = {}


def _torch() -> types.ModuleType:
    torch = types.ModuleType("torch")
    functions = {
        "Tensor": Tensor,
        "device": str,
        "long": np.int64,
        "bfloat16": np.float32,  # rewards of the tests are exact in either
        "tensor": tensor,
        "LongTensor": lambda values: tensor(values, np.int64),
        "BoolTensor": lambda values: tensor(values, np.bool_),
        "arange": lambda n, device=None: tensor(np.arange(n)),
        "zeros_like": lambda t, dtype=None: tensor(np.zeros_like(t, dtype=dtype)),
        "cat": lambda tensors, dim: tensor(np.concatenate(tensors, axis=dim)),
        "cumsum": lambda t, dim: tensor(np.cumsum(t, axis=dim)),
        "clamp": lambda t, min: tensor(np.maximum(t, min)),
        "argmax": lambda t, dim: tensor(np.argmax(t, axis=dim)),
    }
    for name, function in functions.items():
        setattr(torch, name, function)
    return torch


def load_daemon() -> types.ModuleType:
    """The package's module verl.daemon, alone: the others of verl want Ray, Hydra and vLLM."""
    tensordict, verl = types.ModuleType("tensordict"), types.ModuleType("verl")
    setattr(tensordict, "TensorDict", lambda tensors, batch_size: tensors)
    setattr(verl, "DataProto", DataProto)
    sys.modules.update({"torch": _torch(), "tensordict": tensordict, "verl": verl})
    path = Path(agentlightning.__file__).parent / "verl" / "daemon.py"
    spec = importlib.util.spec_from_file_location("agentlightning_verl_daemon", path)
    assert spec is not None and spec.loader is not None
    daemon = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(daemon)
    return daemon
