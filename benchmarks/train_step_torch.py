"""The PyTorch side of `benchmarks.train_step`, in a process of its own.

A straightforward trainer of the same model with Hugging Face's own parts: `BertModel`, its head
for masked tokens, batches grouped by length as `group_by_length` of their trainer does and padded
to their longest sequence, PyTorch's fused AdamW. Runs with the python of `.venv-bench`; prints the
same line of JSON as `train_step_side`.
"""

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

from absl import flags

from benchmarks.train_step_examples import SEQUENCES, longest, result
from official_cmlm import cli
from official_cmlm.process_memory import peak_mib

if TYPE_CHECKING:
    import torch

FLAGS = flags.FLAGS
THREADS = 2


def define_flags() -> None:
    """Defines the flags of the binary."""
    flags.DEFINE_string("examples_file", None, "What `train_step_examples` wrote. Required.")
    flags.DEFINE_string("objective", None, "cmlm, mlm or contrastive. Required.")
    flags.DEFINE_string("size", None, "Layers and width, e.g. 4x256. Required.")
    flags.DEFINE_enum(
        "head", "all", ["all", "masked"], "Positions that the head is computed at; all is HF's own."
    )
    flags.DEFINE_integer("batch_size", 64, "Examples a step.", lower_bound=1)
    cli.required("examples_file", "objective", "size")


def main(argv: list[str]) -> None:
    """Runs the binary."""
    del argv
    import torch
    from transformers.trainer_pt_utils import get_length_grouped_indices

    from benchmarks.train_step_torch_model import Model

    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    source = json.loads(Path(FLAGS.examples_file).read_text())
    examples, size = source["examples"], FLAGS.batch_size
    order = get_length_grouped_indices([longest(e) for e in examples], size)
    batches = [[examples[i] for i in order[at : at + size]] for at in range(0, len(order), size)]
    tensors = [_tensors(batch, source["pad"]) for batch in batches]
    layers, width = (int(n) for n in FLAGS.size.split("x"))
    masked_only = FLAGS.head == "masked"
    model = Model(FLAGS.objective, source["vocab_size"], layers, width, masked_only).train()
    kept = [p for n, p in model.named_parameters() if "bias" in n or "LayerNorm" in n]
    decayed = [p for p in model.parameters() if not any(p is k for k in kept)]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.01}, {"params": kept, "weight_decay": 0.0}],
        lr=1e-4,
        fused=True,
    )

    def step(batch: dict) -> "torch.Tensor":
        optimizer.zero_grad()
        loss = model(batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    before = peak_mib()
    for batch in tensors[:3]:
        step(batch)
    began, busy = time.perf_counter(), time.process_time()
    losses = [step(batch) for batch in tensors]
    seconds, busy = time.perf_counter() - began, time.process_time() - busy
    print(result(batches, seconds, busy, before, [float(losses[0]), float(losses[-1])]))


def _tensors(batch: list[dict], pad: int) -> dict[str, dict[str, "torch.Tensor"]]:
    """Each sequence of the batch padded to its longest, with HF's labels where it is masked."""
    import torch

    from benchmarks.train_step_torch_model import IGNORED

    found = {}
    for name in SEQUENCES[FLAGS.objective]:
        rows = [example[name] for example in batch]
        shape = len(rows), max(len(row["ids"]) for row in rows)
        ids, mask = torch.full(shape, pad), torch.zeros(shape, dtype=torch.long)
        labels = torch.full(shape, IGNORED)
        for i, row in enumerate(rows):
            ids[i, : len(row["ids"])] = torch.tensor(row["ids"])
            mask[i, : len(row["ids"])] = 1
            if "labels" in row:
                labels[i, row["positions"]] = torch.tensor(row["labels"])
        found[name] = {"ids": ids, "mask": mask, "labels": labels}
    return found


if __name__ == "__main__":
    define_flags()
    cli.run(main)
