"""The compiled training step as a module that any XLA runtime can execute.

TensorFlow traces and lowers the step; the result is in XLA's portable form (HLO). Its arguments are
a batch and all variables that the step reads; its results are the variables that it updates.
"""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.compiler.xla import xla_data_pb2
from tensorflow.compiler.xla.service import hlo_pb2

from official_cmlm.modeling import fused_attention


@dataclasses.dataclass(frozen=True)
class StepModule:
    """A training step for batches of one shape.

    Attributes:
      hlo: a serialized `HloModuleProto`. Its arguments are the tensors of the batch in the order of
        `tf.nest.flatten`, then `captured`.
      captured: all that the step reads besides the batch: variables, and constants as arrays.
      updated: for each result of the module, the index in `captured` of the variable that it
        updates.
    """

    hlo: bytes
    captured: tuple[tf.Variable | np.ndarray, ...]
    updated: tuple[int, ...]

    @property
    def constants(self) -> dict[int, np.ndarray]:
        """Index in `captured` -> constant."""
        return {i: v for i, v in enumerate(self.captured) if isinstance(v, np.ndarray)}

    @property
    def read(self) -> list[int]:
        """Indices in `captured` of the variables that the step does not update."""
        others = {*self.updated, *self.constants}
        return [i for i in range(len(self.captured)) if i not in others]


def lower(
    step: Callable[[Any], None],
    batch: Any,
    variables: Callable[[], Iterable[tf.Variable]] = tuple,
    platform: str = "",
) -> StepModule:
    """Traces and lowers a step for batches with the shapes of `batch`.

    Args:
      step: takes a batch, updates variables and returns nothing. Variables that it creates, as
        optimizers create their slots, are created while it is traced.
      batch: nested tensors of static shape.
      variables: called after tracing; returns the variables that the step uses only through their
        resource handles, as raw optimizer ops use slots. All others are found automatically.
      platform: JAX's name of the kind of device that the step is for. A step for `cuda` may call
        the kernels of `modeling.fused_attention`, and no other device can execute it then.

    Raises:
      RuntimeError: if TensorFlow lowers the step to something else than a function from batch and
        variables to updated variables.
    """
    function = tf.function(step, jit_compile=True, autograph=False)
    with fused_attention.choose(platform == "cuda"):
        concrete = function.get_concrete_function(batch)
        hlo = function.experimental_get_compiler_ir(batch)(stage="hlo_serialized")
    by_handle = {id(v.handle): v for v in (*concrete.graph.variables, *variables())}
    captured = tuple(
        by_handle[id(tensor)] if tensor.dtype == tf.resource else np.asarray(tensor)
        for tensor in concrete.captured_inputs
    )
    module = hlo_pb2.HloModuleProto.FromString(hlo)
    first = len(tf.nest.flatten(batch))
    arguments = len(module.host_program_shape.parameters)
    result = module.host_program_shape.result
    # A single result is not a tuple and has no index.
    results = len(result.tuple_shapes) if result.element_type == xla_data_pb2.TUPLE else 1
    # TensorFlow aliases each updated variable with the variable's old value.
    updated = {
        (*entry.output_shape_index, 0)[0]: entry.parameter_number - first
        for entry in module.input_output_alias.entries
    }
    if arguments != first + len(captured) or sorted(updated) != list(range(results)):
        raise RuntimeError(
            f"the lowered step has {arguments} arguments and {results} results, {len(updated)} of "
            f"them updated variables; expected {first} tensors of the batch, {len(captured)} "
            "captured ones, and updated variables only"
        )
    # The runtime decides which buffers to reuse.
    module.ClearField("input_output_alias")
    _remove_copies(module)
    _remove_names(module)
    return StepModule(
        module.SerializeToString(deterministic=True),
        captured,
        tuple(updated[i] for i in range(results)),
    )


def _remove_copies(module: hlo_pb2.HloModuleProto) -> None:
    """Replaces each copy by its original: StableHLO has no copy operation."""
    for computation in module.computations:
        original: dict[int, int] = {}
        # Operands precede their users.
        for instruction in computation.instructions:
            for name in ("operand_ids", "control_predecessor_ids"):
                ids = [original.get(i, i) for i in getattr(instruction, name)]
                instruction.ClearField(name)
                getattr(instruction, name).extend(ids)
            if instruction.opcode == "copy":
                original[instruction.id] = instruction.operand_ids[0]
        computation.root_id = original.get(computation.root_id, computation.root_id)
        remaining = hlo_pb2.HloComputationProto()
        remaining.instructions.extend(i for i in computation.instructions if i.id not in original)
        computation.ClearField("instructions")
        computation.instructions.extend(remaining.instructions)


def _remove_names(module: hlo_pb2.HloModuleProto) -> None:
    """Renumbers everything: TensorFlow's names depend on what the process has traced before.

    Equal steps of two processes then give equal bytes, as a compilation cache requires.
    """
    module.name = "train_step"
    computations = {c.id: number for number, c in enumerate(module.computations, 1)}
    for computation in module.computations:
        instructions = {i.id: number for number, i in enumerate(computation.instructions, 1)}
        for instruction in computation.instructions:
            instruction.ClearField("metadata")
            instruction.id = instructions[instruction.id]
            # The name is unique in the module.
            instruction.name = f"i{instruction.id}.{computations[computation.id]}"
            for name, ids in (
                ("operand_ids", instructions),
                ("control_predecessor_ids", instructions),
                ("called_computation_ids", computations),
            ):
                numbers = [ids[i] for i in getattr(instruction, name)]
                instruction.ClearField(name)
                getattr(instruction, name).extend(numbers)
        computation.root_id = instructions[computation.root_id]
        computation.id = computations[computation.id]
        computation.name = f"c{computation.id}"
        if computation.HasField("program_shape"):
            del computation.program_shape.parameter_names[:]
    module.entry_computation_id = computations[module.entry_computation_id]
    module.entry_computation_name = f"c{module.entry_computation_id}"
    module.id = 0
