"""PyTorch's steps on the batches of a lowered training: `python -m benchmarks.train_step_lowered`.

It trains the model of `benchmarks.train_step` on a GPU, if there is one, and needs only torch,
transformers and NumPy. Beside it, `run_lowered.py` in the same folder measures this project's step.
PyTorch's optimizer is its fused AdamW, which has less to do than the LAMB of CMLM's experiments.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np
import torch

from benchmarks.train_step_torch_model import IGNORED, Model, make_step


def main() -> None:
    """Prints a line of JSON: milliseconds a step, tokens a second, memory, losses."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="written by cmlm lower")
    parser.add_argument("--steps", type=int, default=40, help="measured, after as many to warm up")
    parser.add_argument("--no_masks", action="store_true", help="attend to padding too")
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    objective, encoder, batches = read_batches(args.folder, device)
    sizes = [encoder[name] for name in ("vocab_size", "num_layers", "hidden_size")]
    length = next(iter(batches[0].values()))["ids"].shape[1]
    model = Model(objective, *sizes, seq_length=length, with_masks=not args.no_masks)
    model = model.to(device).train()
    step = make_step(model, torch.compile(model, dynamic=False), device, "bfloat16")

    def run(steps: int) -> tuple[float, list[float]]:
        began = time.perf_counter()
        losses = [step(batches[i % len(batches)]) for i in range(steps)]
        losses = torch.stack(losses).tolist()
        return (time.perf_counter() - began) / steps, losses

    first, _ = run(1)
    run(args.steps)
    seconds, losses = run(args.steps)
    tokens = [sum(float(part["mask"].sum()) for part in batch.values()) for batch in batches]
    on_gpu = device == "cuda"
    figures = {
        "device": torch.cuda.get_device_name() if on_gpu else device,
        "torch": torch.__version__,
        "masks": not args.no_masks,
        "milliseconds_a_step": 1e3 * seconds,
        "tokens_per_second": float(np.mean(tokens)) / seconds,
        "seconds_of_first_step": first,
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30 if on_gpu else 0.0,
        "losses": [losses[0], losses[-1]],
    }
    print(json.dumps(figures), flush=True)


def read_batches(folder: Path, device: str) -> tuple[str, dict, list[dict[str, dict]]]:
    """Reads a lowered folder: the objective, the encoder's config, the batches on a device.

    All predictions have slots, as in our batches; labels of slots that are not used are `IGNORED`.
    """
    contents = json.loads((folder / "lowered.json").read_text())
    places = {name: i for i, name in enumerate(contents["names"])}
    objective = contents["names"][0].partition(".")[0]
    if not hasattr(Model, objective):
        sys.exit(f"error: {folder}: PyTorch's model has no {objective}; lower cmlm, mlm or simcse")
    sequences = sorted(name.split(".")[1] for name in places if name.endswith(".input_word_ids"))
    # A sequence that has a masked copy is not encoded itself.
    encoded = [name for name in sequences if f"{name}_masked" not in sequences]
    batches = []
    with np.load(folder / "batches.npz") as file:
        for number in range(len(contents["batches"])):

            def load(sequence: str, name: str, number: int = number) -> torch.Tensor:
                array = file[f"{number}/{places[f'{objective}.{sequence}.{name}']}"]
                return torch.from_numpy(array.astype(np.int64)).to(device)

            batch = {}
            for name in encoded:
                ids, mask = load(name, "input_word_ids"), load(name, "input_mask")
                batch[name] = {"ids": ids, "mask": mask}
                if name.endswith("_masked"):
                    rows, length = ids.shape
                    first = torch.arange(0, rows * length, length, device=device)[:, None]
                    labels = load(name, "masked_lm_ids")
                    labels[load(name, "masked_lm_weights") == 0] = IGNORED
                    predicted = first + load(name, "masked_lm_positions")
                    batch[name] |= {"predicted": predicted.flatten(), "labels": labels.flatten()}
            batches.append(batch)
    return objective, contents["encoder"], batches


if __name__ == "__main__":
    main()
