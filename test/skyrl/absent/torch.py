"""Stands where PyTorch would: SkyRL's JAX backend names Tensor in annotations and needs nothing else of it."""

__version__ = "0"  # too old for transformers to use


class Tensor:
    pass
