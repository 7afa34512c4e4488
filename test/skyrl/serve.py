"""Starts SkyRL's Tinker server on the CPU, or on the GPUs, with its engine under the same interpreter.

    python serve.py MODEL_DIR STATE_DIR PORT [SHARDS]

With SHARDS the engine has so many devices, over which it shards the model, its optimizer and each batch (fully sharded
data parallelism). They are all this CPU, or with AGL_SKYRL_GPUS set so many GPUs. STATE_DIR holds its database and checkpoints: a server
that is started on it again knows them. The server ends with its engine, and the other way round by the process group that both are in.
"""

import os
import sys
from pathlib import Path

here = Path(__file__).resolve().parent


def environment(state, shards):
    """What the server and its engine inherit: a device, no network, and modules for libraries that are not there."""
    if os.environ.get("AGL_SKYRL_GPUS"):
        # Several engines share a GPU, of which each would take three quarters. Its float32 is TF32, of 10 bits, unless told otherwise.
        device = {"JAX_PLATFORMS": "cuda", "XLA_PYTHON_CLIENT_PREALLOCATE": "false", "JAX_DEFAULT_MATMUL_PRECISION": "highest"}
    else:
        device = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": f"--xla_force_host_platform_device_count={shards}"}
    return device | {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "JAX_COMPILATION_CACHE_DIR": os.environ.get("JAX_COMPILATION_CACHE_DIR", str(state / "jax")),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.2",
        "PYTHONPATH": str(here / "absent"),
    }


def main():
    model, state, port = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve(), int(sys.argv[3])
    shards = int(sys.argv[4]) if len(sys.argv) > 4 else 1
    state.mkdir(parents=True, exist_ok=True)
    wanted = environment(state, shards)
    if any(os.environ.get(name) != value for name, value in wanted.items()):
        os.environ.update(wanted)
        os.execv(sys.executable, [sys.executable, *sys.argv])

    import uvicorn
    from skyrl.tinker import api
    from skyrl.tinker.config import EngineConfig, config_to_argv

    # The server starts its engine with `uv run`, which would resolve and download an environment of its own.
    api._build_uv_run_cmd_engine = lambda _, config: [sys.executable, "-m", "skyrl.tinker.engine", *config_to_argv(config)]

    api.app.state.engine_config = EngineConfig(
        base_model=str(model),
        backend="jax",
        # Adapter 0 is the base model's. Fixed sizes of batches keep the number of shapes to compile small.
        backend_config={"max_lora_adapters": 4, "max_lora_rank": 32, "train_micro_batch_size": 16, "sample_max_num_sequences": 32, "fully_sharded_data_parallel_size": shards},
        checkpoints_base=state / "checkpoints",
        database_url=f"sqlite:///{state / 'tinker.db'}",
    )
    uvicorn.run(api.app, host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    main()
