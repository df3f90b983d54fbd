"""Compiles a training step for a TPU or a GPU that this machine need not have, by JAX."""

import importlib
import re
import time
from pathlib import Path
from typing import Any

from benchmarks.accelerators.cases import Case
from benchmarks.accelerators.kernels import count_kernels
from official_cmlm import cli
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


# The one GPU that is described, see the file of that name.
H100 = "h100"
# The maker's data sheet: dense bfloat16 FLOPs a second. What good kernels reach, an assumption, is
# 80 % of that, and 3.0 of the 3.35 TB/s of the memory.
H100_PEAK = 989e12
_REACHED_FLOPS, _REACHED_BYTES = 790e12, 3.0e12
# XLA cannot measure which of its own products is fastest without the device: a library's are taken.
_GPU_OPTIONS = {"xla_gpu_enable_triton_gemm": False}


def platform_of(device: str) -> str:
    """Returns JAX's name of a device's platform."""
    return "cuda" if device == H100 else "tpu"


def find_device(name: str) -> Any:
    """Returns a device that this machine need not have.

    Args:
      name: `h100`, or a TPU topology as libtpu calls it, e.g. `v5e:2x2`, of which it is the first.

    Raises:
      UserError: if JAX or the device's compiler is missing, or the topology is unknown.
    """
    compiler = "jax_plugins.xla_cuda13" if name == H100 else "libtpu"
    try:
        import jax

        # Where it is missing, JAX's error does not say so.
        importlib.import_module(compiler)
    except ImportError as error:
        raise UserError(
            f"--device={name}: compiling for it needs JAX and {compiler} ({error}); {INSTALL}"
        ) from None
    from jax.experimental import topologies

    jax.config.update("jax_enable_x64", True)
    try:
        if name == H100:
            target = (Path(__file__).parent / "h100.txtpb").read_text(encoding="utf-8")
            where = {"platform": "cuda", "topology": "1x1x1", "target_config": target}
        else:
            where = {"platform": "tpu", "topology_name": name}
        return topologies.get_topology_desc(**where).devices[0]
    # JAX has no error of its own for a topology that libtpu does not know.
    except (RuntimeError, ValueError, NotImplementedError) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(f"--device={name}: {reason}") from None


def lower_step(case: Case, step: Path, *changes: str | int) -> dict[str, Any]:
    """Writes a case's step: `write_step`, without TensorFlow's messages."""
    cli.quiet_tensorflow()
    from benchmarks.accelerators.lowering import write_step

    return write_step(case, step, *changes)


def compile_step(step: Path, name: str) -> dict[str, Any]:
    """Compiles a step that `jax_loop.portable_step` made; returns the compiler's account of it.

    Returns:
      `arguments`, `temporaries`, `total` (bytes; arguments are donated, so that new weights take
      the place of old ones), `flops`, `bytes_accessed` and `seconds`; of a GPU also `kernels` and
      `floor` (seconds), see `count_kernels`, from which its `flops` and `bytes_accessed` are.
      Where the step does not fit a TPU's memory: `wanted` and `available` (bytes), and `seconds`.

    Raises:
      UserError: see `find_device`.
    """
    device = find_device(name)
    import jax

    from official_cmlm.training.jax_loop import COMPILER_OPTIONS

    sharding = jax.sharding.SingleDeviceSharding(device)
    exported = jax.export.deserialize(step.read_bytes())
    arguments, _ = jax.tree.unflatten(exported.in_tree, exported.in_avals)
    shapes = jax.tree.map(
        lambda each: jax.ShapeDtypeStruct(each.shape, each.dtype, sharding=sharding), arguments
    )
    lowered = jax.jit(exported.call, donate_argnums=0).lower(*shapes)
    started = time.monotonic()
    try:
        own = _GPU_OPTIONS if name == H100 else {}
        compiled = lowered.compile({**COMPILER_OPTIONS, **own})
    except jax.errors.JaxRuntimeError as error:
        shortage = out_of_memory(str(error))
        if not shortage:
            raise
        return {**shortage, "seconds": time.monotonic() - started}
    seconds, memory = time.monotonic() - started, compiled.memory_analysis()
    cost = compiled.cost_analysis() or {}
    beside = memory.output_size_in_bytes - memory.alias_size_in_bytes
    figures = {
        "arguments": memory.argument_size_in_bytes,
        "temporaries": memory.temp_size_in_bytes,
        "total": memory.argument_size_in_bytes + beside + memory.temp_size_in_bytes,
        "flops": cost.get("flops", 0.0),
        "bytes_accessed": cost.get("bytes accessed", 0.0),
        "seconds": seconds,
    }
    if name == H100:
        kernels = count_kernels(compiled.as_text(), _REACHED_BYTES, _REACHED_FLOPS)
        figures |= {"kernels": kernels.count, "floor": kernels.floor}
        figures |= {"flops": kernels.flops, "bytes_accessed": kernels.bytes}
    return figures


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
