"""Floating-point operations that a training step needs at least, by side: a bound on its speed."""

import dataclasses

from benchmarks.train_step_examples import (
    MAX_PREDICTIONS,
    SEQ_LENGTH,
    Batch,
    longest,
    prediction_slots,
)

_PROJECTIONS = 15


@dataclasses.dataclass(frozen=True)
class Shape:
    """What is trained.

    Attributes:
      objective: `cmlm`, `mlm` or `contrastive`.
      layers, width, vocab_size: of the encoder.
    """

    objective: str
    layers: int
    width: int
    vocab_size: int

    @classmethod
    def of(cls, objective: str, size: str, vocab_size: int) -> "Shape":
        layers, width = (int(n) for n in size.split("x"))
        return cls(objective, layers, width, vocab_size)

    def block(self, queries: int, keys: int) -> int:
        """FLOPs of one Transformer block, forward, one row."""
        dense = 2 * (2 * keys + 10 * queries) * self.width**2
        return dense + 4 * queries * keys * self.width

    def example(self, length: int, read: int, predicted: float) -> float:
        """FLOPs of one example, forward.

        Args:
          length: tokens that its sequences are padded to.
          read: outputs of the last block that are computed of the last encoded sequence.
          predicted: positions that get logits.
        """
        whole = self.layers * self.block(length, length)
        if self.objective == "contrastive":
            return 2 * (whole - self.block(length, length) + self.block(read, length))
        extra = _PROJECTIONS if self.objective == "cmlm" else 0
        second = length + extra
        found = (self.layers - 1) * self.block(second, second) + self.block(read, second)
        if extra:
            found += whole + 16 * (extra - 1) * self.width**2
        return found + 2 * predicted * self.width * (self.width + self.vocab_size)


def step_flops(shape: Shape, batches: list[Batch], batch_size: int) -> dict[str, float]:
    """FLOPs of a forward pass over all examples: `ours`, `padding`, and two references'.

    `pytorch` computes our batches, its head at masked positions and its last block everywhere;
    `pytorch_plain` the head everywhere, too.

    Args:
      shape: see above.
      batches: our own.
      batch_size: the plain reference's, whose batches are here sorted over all examples: its least.
    """
    objective = shape.objective
    extra = _PROJECTIONS if objective == "cmlm" else 0
    examples = [example for batch in batches for example in batch.examples]
    ours = pytorch = 0.0
    for batch in batches:
        slots = prediction_slots(objective, batch.length)
        for example in batch.examples:
            used = sum(len(sequence.get("labels", ())) for sequence in example.values())
            ours += shape.example(batch.length, slots or 1, used)
            pytorch += shape.example(batch.length, batch.length + extra, used)
    slots = MAX_PREDICTIONS[objective]
    padding = len(examples) * shape.example(SEQ_LENGTH, SEQ_LENGTH + extra, slots)
    lengths = sorted(longest(example) for example in examples)
    plain = 0.0
    for at in range(0, len(lengths), batch_size):
        group = lengths[at : at + batch_size]
        plain += len(group) * shape.example(group[-1], group[-1] + extra, group[-1])
    return {"ours": ours, "padding": padding, "pytorch": pytorch, "pytorch_plain": plain}
