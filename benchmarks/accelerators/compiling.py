"""Compiles a training step for a TPU that this machine need not have, by JAX and libtpu."""

import re
import time
from pathlib import Path
from typing import Any

from official_cmlm.common.errors import UserError

# Environment variables that must be set before JAX is imported.
ENVIRONMENT = {
    # No TPU is looked for on this machine, nor at a cloud's metadata server.
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    # Compilers do not share a device, so that several processes may have one.
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}
INSTALL = "pip install -r requirements-bench.txt"
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def topology_device(topology: str) -> Any:
    """Returns the first device of a TPU topology, which this machine need not have.

    Args:
      topology: as libtpu calls it, e.g. `v5e:2x2`.

    Raises:
      UserError: if JAX or libtpu is missing, or the topology is unknown.
    """
    try:
        import jax
        import libtpu  # noqa: F401 - where it is missing, JAX's error does not say so
    except ImportError as error:
        raise UserError(f"compiling for a TPU needs JAX and libtpu ({error}); {INSTALL}") from None
    from jax.experimental import topologies

    jax.config.update("jax_enable_x64", True)
    try:
        return topologies.get_topology_desc(platform="tpu", topology_name=topology).devices[0]
    # JAX has no error of its own for a topology that libtpu does not know.
    except (RuntimeError, ValueError, NotImplementedError) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(f"--topology={topology}: {reason}") from None


def compile_step(step: Path, topology: str) -> dict[str, Any]:
    """Compiles a step that `jax_loop.portable_step` made; returns the compiler's account of it.

    Returns:
      `arguments`, `temporaries`, `total` (bytes; arguments are donated, so that new weights take
      the place of old ones), `flops`, `bytes_accessed` and `seconds`. Where the step does not fit
      the TPU's memory: `wanted` and `available` (bytes), and `seconds`.

    Raises:
      UserError: see `topology_device`.
    """
    device = topology_device(topology)
    import jax

    sharding = jax.sharding.SingleDeviceSharding(device)
    exported = jax.export.deserialize(step.read_bytes())
    arguments, _ = jax.tree.unflatten(exported.in_tree, exported.in_avals)
    shapes = jax.tree.map(
        lambda each: jax.ShapeDtypeStruct(each.shape, each.dtype, sharding=sharding), arguments
    )
    lowered = jax.jit(exported.call, donate_argnums=0).lower(*shapes)
    started = time.monotonic()
    try:
        compiled = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        shortage = out_of_memory(str(error))
        if not shortage:
            raise
        return {**shortage, "seconds": time.monotonic() - started}
    seconds, memory = time.monotonic() - started, compiled.memory_analysis()
    cost = compiled.cost_analysis() or {}
    beside = memory.output_size_in_bytes - memory.alias_size_in_bytes
    return {
        "arguments": memory.argument_size_in_bytes,
        "temporaries": memory.temp_size_in_bytes,
        "total": memory.argument_size_in_bytes + beside + memory.temp_size_in_bytes,
        "flops": cost.get("flops", 0.0),
        "bytes_accessed": cost.get("bytes accessed", 0.0),
        "seconds": seconds,
    }


def out_of_memory(message: str) -> dict[str, float]:
    """Returns the bytes `wanted` and `available` in a compiler's message; {} for other messages.

    >>> out_of_memory("RESOURCE_EXHAUSTED: ... Used 26.40G of 15.75G hbm. Exceeded ...")["wanted"]
    28346784153.6
    """
    match = re.search(r"[Uu]sed ([\d.]+)([KMGT]?) of ([\d.]+)([KMGT]?) hbm", message)
    if not match:
        return {}
    used, used_unit, had, had_unit = match.groups()
    return {"wanted": float(used) * _UNITS[used_unit], "available": float(had) * _UNITS[had_unit]}
