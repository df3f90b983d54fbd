"""The PyTorch side of `benchmarks.train_step`, for the python of `.venv-bench`.

It trains the same model, made of Hugging Face's parts: `BertModel` with `sdpa` attention, its head
for masked tokens at masked positions only, PyTorch's fused AdamW.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from benchmarks.train_step_examples import SEQUENCES, THREADS, Examples, measure
from official_cmlm.common.processor import peak_mib

if TYPE_CHECKING:
    import torch

# Most shapes that are compiled: more than there are buckets, so that none runs eagerly.
_MOST_SHAPES = 64


def prepare(examples: Examples, size: str, variant: str, precision: str) -> Callable[[], dict]:
    """Compiles the steps; returns a call that measures them.

    Args:
      examples: the batches to train on.
      size: layers and width, e.g. `4x256`.
      variant: `eager`: our batches, padded to their longest sequence. `dynamic`: the same, compiled
        by `torch.compile(dynamic=True)`. `static`: compiled by `torch.compile(dynamic=False)` once
        for each bucket that batches are padded to; only the number of masked positions is dynamic.
      precision: `float32`, or `bfloat16` by autocast.
    """
    import torch

    from benchmarks.train_step_torch_model import Model, make_step

    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    batches, static = examples.batches, variant == "static"
    tensors = [
        tensors_of(b.examples, SEQUENCES[examples.objective], examples.pad, static * b.length)
        for b in batches
    ]
    layers, width = (int(n) for n in size.split("x"))
    model = Model(examples.objective, examples.vocab_size, layers, width).train()
    loss_of = model
    if variant in ("dynamic", "static"):
        torch._dynamo.config.cache_size_limit = _MOST_SHAPES
        loss_of = torch.compile(model, dynamic=not static)
        for batch in tensors:
            for sequence in batch.values():
                for name in ("predicted", "labels") if "predicted" in sequence else ():
                    torch._dynamo.mark_dynamic(sequence[name], 0)
    step = make_step(model, loss_of, "cpu", precision)
    before = peak_mib()
    # Each of our shapes runs once here, which compiles it.
    seen = {batch.length or i: tensor for i, (batch, tensor) in enumerate(zip(batches, tensors))}
    for batch in seen.values():
        step(batch)
    return lambda: measure(step, batches, tensors, before)


def tensors_of(
    examples: list[dict], names: tuple[str, ...], pad: int, length: int
) -> dict[str, dict[str, "torch.Tensor"]]:
    """Returns each sequence of a batch; where it is masked, with labels.

    `labels` are those of the masked positions, and `predicted` says where these are in the flat
    batch.

    Args:
      examples: the batch.
      names: the sequences that are encoded.
      pad: id of the padding.
      length: tokens to pad to; 0: the longest of the sequence's kind in the batch.
    """
    import torch

    from benchmarks.train_step_torch_model import IGNORED

    batch_parts = {}
    for name in names:
        rows = [example[name] for example in examples]
        shape = len(rows), length or max(len(row["ids"]) for row in rows)
        ids, mask = torch.full(shape, pad), torch.zeros(shape, dtype=torch.long)
        labels = torch.full(shape, IGNORED)
        for i, row in enumerate(rows):
            ids[i, : len(row["ids"])] = torch.tensor(row["ids"])
            mask[i, : len(row["ids"])] = 1
            if "labels" in row:
                labels[i, row["positions"]] = torch.tensor(row["labels"])
        batch_parts[name] = {"ids": ids, "mask": mask}
        if any("labels" in row for row in rows):
            labels = labels.flatten()
            batch_parts[name]["predicted"] = (labels != IGNORED).nonzero()[:, 0]
            batch_parts[name]["labels"] = labels[batch_parts[name]["predicted"]]
    return batch_parts
