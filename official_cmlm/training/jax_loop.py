"""Training steps on JAX's device, built by TensorFlow: `runtime.distribution_strategy: pjrt`.

TensorFlow runs on the CPU: it reads the batches, lowers the step, evaluates and saves. JAX's
client, which has a build for most accelerators, compiles and executes the step. No other file of
the library imports JAX.
"""

import concurrent.futures
import dataclasses
import io
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import tensorflow as tf
from tqdm import tqdm

from official_cmlm.common.errors import UserError
from official_cmlm.common.files import cache_folder
from official_cmlm.modeling.fused_attention import KERNELS
from official_cmlm.training.step_module import StepModule, lower

INSTALL = (
    'pip install ".[jax]" in the checkout for a CPU, "jax[cuda13]" or "jax[tpu]" for an accelerator'
)
# The whole number of its compute capability.
_AMPERE = 8
# Steps that may be queued on the device: enough that it never waits for Python.
AHEAD = 3
# A value that the step rounds to 16 bits is written in 16 bits. By default XLA leaves out roundings
# that are followed by a conversion to float32, and then writes such values in float32.
COMPILER_OPTIONS = {"xla_allow_excess_precision": False}
# Bytes of compiled steps that are kept; those that were not used for longest are removed.
_KEPT_BYTES = 2**31


class DeviceFailed(Exception):
    """The device, or JAX, could not execute a step; the weights on the device are lost."""


def _load() -> Any:
    """Imports JAX and enables 64-bit integers, the type of example keys."""
    try:
        import jax
    except ImportError:
        raise UserError(
            f"runtime.distribution_strategy is pjrt, which needs JAX; {INSTALL}"
        ) from None
    try:
        import jax.export
        from jax.extend.mlir import hlo_to_stablehlo, serialize_portable_artifact  # noqa: F401
        from jax.extend.mlir.dialects.stablehlo import get_current_version  # noqa: F401
    except ImportError as error:
        raise UserError(
            f"runtime.distribution_strategy pjrt: JAX {jax.__version__} lacks a function that is "
            f"needed ({error}); install version 0.10 or newer ({INSTALL})"
        ) from None
    jax.config.update("jax_enable_x64", True)
    return jax


def _keep_compiled(jax: Any) -> None:
    """Lets JAX keep compiled steps for the next start, unless the user has named a folder."""
    if not jax.config.jax_compilation_cache_dir:
        jax.config.update("jax_compilation_cache_dir", str(cache_folder() / "compiled"))
        jax.config.update("jax_compilation_cache_max_size", _KEPT_BYTES)


def _devices(jax: Any) -> list[Any]:
    """Returns all devices of JAX's default backend; raises `UserError` if there is none."""
    try:
        return jax.devices()
    except RuntimeError as error:
        raise UserError(
            f"runtime.distribution_strategy pjrt: JAX found no device ({_first_line(error)})"
        ) from None


def describe_device() -> str:
    """Returns a readable name of the device that runs the steps, e.g. `NVIDIA H100 by JAX 0.10.2`.

    Raises:
      UserError: if JAX or its device is missing.
    """
    jax = _load()
    first, *others = _devices(jax)
    more = f", the first of {len(others) + 1}" if others else ""
    return f"{first.device_kind} by JAX {jax.__version__}{more}"


def choose_half_precision() -> str | None:
    """Returns the half precision that JAX's device multiplies faster than float32; None: none.

    Raises:
      UserError: if JAX or its device is missing.
    """
    device = _devices(_load())[0]
    if device.platform == "tpu":
        return "bfloat16"
    # NVIDIA's tensor cores take float16 from Volta (7.0) on, bfloat16 from Ampere (8.0) on.
    generation = _nvidia_generation(device)
    return "bfloat16" if generation >= _AMPERE else "float16" if generation == 7 else None


def _nvidia_generation(device: Any) -> int:
    """Returns the whole number of an NVIDIA GPU's compute capability; 0 for other devices."""
    # A CPU has no capability, an AMD GPU one without a version, e.g. gfx942.
    version = str(getattr(device, "compute_capability", "")).split(".")[0]
    return int(version) if version.isdigit() else 0


@dataclasses.dataclass(frozen=True)
class _Executable:
    """A compiled step for batches of one shape; `updated` and `read` are variable references."""

    run: Callable[..., tuple[list[Any], Any]]
    updated: list[Any]
    read: list[Any]


class JaxLoop:
    """A loop of training steps, whose variables stay on the device until `pull` copies them back.

    Host variables, e.g. metrics, are read and reset by TensorFlow between two runs of the loop.
    They are copied to the device before a run and back after it. All other variables are copied to
    the device once, and back by `pull`.

    Attributes:
      device: readable name of the device.
      accelerated: whether the device is something else than a CPU.
      waited: seconds in which the device was idle because the next batch had not arrived.
      compiling: seconds spent on lowering and compiling steps.
    """

    def __init__(
        self,
        step: Callable[[Any], None],
        host_variables: Iterable[tf.Variable],
        variables: Callable[[], Iterable[tf.Variable]] = tuple,
    ) -> None:
        """Starts JAX; nothing is compiled yet.

        Args:
          step, variables: see `step_module.lower`.
          host_variables: see the class.

        Raises:
          UserError: if JAX or its device is missing.
        """
        self._jax = _load()
        self._device = _devices(self._jax)[0]
        self.device = describe_device()
        self.accelerated = self._device.platform != "cpu"
        if self.accelerated:
            _keep_compiled(self._jax)
        self._step, self._variables = step, variables
        self._host_variables = list(host_variables)
        self._host = {variable.ref() for variable in self._host_variables}
        self._executables: dict[Any, _Executable] = {}
        # Variable's reference -> array on the device.
        self._state: dict[Any, Any] = {}
        # Whether the device's variables are newer than TensorFlow's.
        self._newer = False
        self.waited = 0.0
        self.compiling = 0.0

    def run(self, iterator: Any, num_steps: int, stop: Callable[[], bool] = lambda: False) -> None:
        """Runs `num_steps` steps on the batches of an iterator, or at least one until `stop()`.

        Raises:
          DeviceFailed: if the device or JAX fails.
        """
        try:
            self._run(iterator, int(num_steps), stop)
        except self._jax.errors.JaxRuntimeError as error:
            raise DeviceFailed(f"{self._device.device_kind}: {_first_line(error)}") from error

    def _run(self, iterator: Any, num_steps: int, stop: Callable[[], bool]) -> None:
        self._push([ref for ref in self._state if ref in self._host])
        self._newer = True
        done_before, ends = None, deque()
        with concurrent.futures.ThreadPoolExecutor(1) as watcher:
            for _ in range(num_steps):
                batch = next(iterator)
                arrived = time.monotonic()
                executable = self._executable(batch)
                features = [np.asarray(tensor) for tensor in tf.nest.flatten(batch)]
                # The copy overlaps with the previous step.
                features = self._jax.device_put(features, self._device)
                end = self._take(executable, features)
                ends.append((arrived, watcher.submit(self._wait_for, end)))
                if len(ends) > AHEAD:
                    done_before = self._count(ends.popleft(), done_before)
                if stop():
                    break
            while ends:
                done_before = self._count(ends.popleft(), done_before)
        self._pull([ref for ref in self._state if ref in self._host])

    def _take(self, executable: _Executable, features: list[Any]) -> Any:
        """Starts a step; returns an array that becomes ready when the step is done."""
        updated = [self._state[ref] for ref in executable.updated]
        read = [self._state[ref] for ref in executable.read]
        results, end = executable.run(updated, read, features)
        self._state.update(zip(executable.updated, results))
        return end

    def _wait_for(self, array: Any) -> float:
        """Waits for an array; returns the host's time at which it was ready."""
        self._jax.block_until_ready(array)
        return time.monotonic()

    def _count(self, step: tuple[float, concurrent.futures.Future], before: float | None) -> float:
        """Adds the wait for this step's batch; returns the host's time at the step's end."""
        arrived, end = step
        if before is not None:
            self.waited += max(0.0, arrived - before)
        return end.result()

    def pull(self) -> None:
        """Copies the device's variables to TensorFlow, if they are newer.

        Those that each run brings back stay as they are: the host may have reset them since.
        """
        if self._newer:
            self._pull([ref for ref in self._state if ref not in self._host])
            self._newer = False

    def forget(self) -> None:
        """Discards the device's variables; the next step starts from TensorFlow's.

        Call it after changing TensorFlow's variables.
        """
        self._state.clear()
        self._newer = False

    def _push(self, refs: list[Any]) -> None:
        # The values are copied, as on a CPU the device may use the host's own memory.
        values = [np.array(ref.deref().numpy()) for ref in refs]
        self._state.update(zip(refs, self._jax.device_put(values, self._device)))

    def _pull(self, refs: list[Any]) -> None:
        arrays = [self._state[ref] for ref in refs]
        try:
            values = self._jax.device_get(arrays)
        except self._jax.errors.JaxRuntimeError as error:
            raise DeviceFailed(f"{self._device.device_kind}: {_first_line(error)}") from error
        for ref, value in zip(refs, values):
            ref.deref().assign(value)

    def _executable(self, batch: Any) -> _Executable:
        """Returns the compiled step for a batch's shapes, with its variables on the device."""
        shapes = tuple((tuple(t.shape), t.dtype) for t in tf.nest.flatten(batch))
        if shapes not in self._executables:
            started = time.monotonic()
            line = f"compiling the step for batches of {_sizes(batch)}"
            tqdm.write(line, file=sys.stderr)
            self._executables[shapes] = self._compile(batch)
            self.compiling += time.monotonic() - started
        executable = self._executables[shapes]
        if missing := [
            ref for ref in [*executable.updated, *executable.read] if ref not in self._state
        ]:
            self._push(missing)
        return executable

    def lower(self, batch: Any, platform: str) -> StepModule:
        """Lowers the step for batches with the shapes of `batch`; compiles nothing.

        `platform`: see `step_module.lower`.
        """
        # Under a half-precision policy graphs do not list wrapped variables, e.g. those of metrics.
        return lower(
            self._step, batch, lambda: [*self._variables(), *self._host_variables], platform
        )

    def _compile(self, batch: Any) -> _Executable:
        # Older GPUs lack the kernels.
        platform = "cuda" if _nvidia_generation(self._device) >= _AMPERE else ""
        jax, module = self._jax, self.lower(batch, platform)
        exported = _as_exported(jax, module, tf.nest.flatten(batch))
        constants = {
            i: jax.device_put(value, self._device) for i, value in module.constants.items()
        }
        return _Executable(
            _donating(jax, module, exported, constants),
            [module.captured[i].ref() for i in module.updated],
            [module.captured[i].ref() for i in module.read],
        )


def _donating(jax: Any, module: StepModule, exported: Any, constants: dict[int, Any]) -> Any:
    """Returns the step as a compiled function that reuses the memory of updated variables.

    Its arguments are three lists: values of the updated variables, of the variables that are only
    read, and the tensors of the batch. It returns the updated values, and an array that becomes
    ready when the step is done. `constants`: index in `captured` -> array.
    """
    updated, read = module.updated, module.read

    def run(new: list[Any], old: list[Any], features: list[Any]) -> tuple[list[Any], Any]:
        values = {**constants, **dict(zip(updated, new)), **dict(zip(read, old))}
        results = exported.call(*features, *(values[i] for i in range(len(module.captured))))
        # This result is separate, as the memory of all others is donated to the next step.
        return list(results), jax.numpy.ravel(results[0])[:1]

    return jax.jit(run, donate_argnums=0, compiler_options=COMPILER_OPTIONS)


def portable_step(module: StepModule, batch: Any, platform: str) -> bytes:
    """Serialises a step for `jax.export.deserialize`, to be compiled for another kind of device.

    It is the function that `JaxLoop` calls: its three arguments are lists of arrays. Those of the
    first list, the variables that it updates, are to be donated.

    Args:
      module: the step.
      batch: a batch for which it was lowered.
      platform: JAX's name of the kind of device, e.g. `tpu`.

    Raises:
      UserError: if JAX is missing.
    """
    jax, features = _load(), tf.nest.flatten(batch)
    exported = _as_exported(jax, module, features, [platform])
    run = _donating(jax, module, exported, module.constants)
    arguments = (
        [_shape_of(jax, module.captured[i]) for i in module.updated],
        [_shape_of(jax, module.captured[i]) for i in module.read],
        [_shape_of(jax, feature) for feature in features],
    )
    # JAX promises nothing about these kernels; a step is to be compiled by the version it is for.
    allowed = [jax.export.DisabledSafetyCheck.custom_call(name) for name in KERNELS]
    export = jax.export.export(run, platforms=[platform], disabled_checks=allowed)
    return bytes(export(*arguments).serialize())


def _shape_of(jax: Any, value: tf.Tensor | tf.Variable | np.ndarray) -> Any:
    dtype = tf.as_dtype(value.dtype).as_numpy_dtype
    return jax.ShapeDtypeStruct(tuple(value.shape), dtype)


def _as_exported(
    jax: Any, module: StepModule, batch: list[tf.Tensor], platforms: list[str] | None = None
) -> Any:
    """Returns a step as a `jax.export.Exported`, which JAX can call inside its own functions.

    JAX exports a placeholder with the same arguments and results; its code is then replaced by the
    step's. `platforms`: JAX's names of the kinds of device that it may be compiled for; default:
    this machine's.
    """
    from jax.extend import mlir
    from jax.extend.mlir import ir
    from jax.extend.mlir.dialects import stablehlo

    arguments = [_shape_of(jax, value) for value in (*batch, *module.captured)]
    results = [_shape_of(jax, module.captured[i]) for i in module.updated]

    def nothing(*_: Any) -> list[Any]:
        return [jax.numpy.zeros(result.shape, result.dtype) for result in results]

    exported = jax.export.export(jax.jit(nothing, keep_unused=True), platforms=platforms)(
        *arguments
    )
    # Any function's context knows all dialects.
    with jax.jit(lambda: 0).lower().compiler_ir().context, ir.Location.unknown():
        step = ir.Module.parse(mlir.hlo_to_stablehlo(module.hlo))
        _select_instead_of_branching(step)
        step.operation.write_bytecode(code := io.BytesIO())
    code = mlir.serialize_portable_artifact(code.getvalue(), stablehlo.get_current_version())
    return dataclasses.replace(exported, mlir_module_serialized=code)


def _select_instead_of_branching(module: Any) -> None:
    """Computes both branches of each condition of a StableHLO module, and selects the results.

    A GPU's program reads a condition on the host, which then waits for the device in each step. The
    steps' branches are an update and none, so that a selection takes no more time.
    """
    from jax.extend.mlir import ir
    from jax.extend.mlir.dialects import stablehlo

    conditions: list[Any] = []

    def collect(operation: Any) -> Any:
        if operation.name == "stablehlo.if":
            conditions.append(operation)
        return ir.WalkResult.ADVANCE

    # Inner conditions come first.
    module.operation.walk(collect, ir.WalkOrder.POST_ORDER)
    for condition in conditions:
        branches = []
        for region in condition.regions:
            *body, end = region.blocks[0].operations
            for operation in body:
                operation.operation.move_before(condition)
            branches.append(list(end.operands))
        with ir.InsertionPoint(condition):
            for result, *values in zip(condition.results, *branches):
                result.replace_all_uses_with(stablehlo.select(condition.operands[0], *values))
        condition.erase()


def _sizes(batch: dict[str, dict]) -> str:
    """Returns the shapes of a batch's token ids, e.g. `64 × 128 tokens`."""
    shapes = {
        tuple(feature["input_word_ids"].shape)
        for features in batch.values()
        for feature in features.values()
        if isinstance(feature, dict)
    }
    return ", ".join(" × ".join(map(str, shape)) for shape in sorted(shapes)) + " tokens"


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0][:200]
