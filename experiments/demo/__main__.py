"""The main job from end to end: `make demo`, or `cmlm demo`.

First two encoders that ship search the text, the second one with a question in German. Then the
project's own binaries run one after the other: text → records → training → TF-Hub modules → a
program that knows only TF-Hub. The training goes on from the encoder of `--start`; from random
weights it learns a vocabulary of the text first. Each stage is skipped if its output is there
already and was made by the same command from the same text and experiment.
"""

import dataclasses
import hashlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import yaml

from official_cmlm import cli
from official_cmlm.checkpoints.find_encoder import encoder_directory_of, find_encoder
from official_cmlm.common.extras import check_extra
from official_cmlm.common.files import check_writable
from official_cmlm.common.input_files import expand_inputs
from official_cmlm.common.validation import OneOf, at_least

from .. import registry
from ..runner import Runner, Stages

VOCAB_SIZE = 8000
# Share of the documents that training never sees.
HELD_OUT_SHARE = 0.05
RANDOM = "random"
# Encoders that ship answer these queries first; a person sees at once if the answer is right. The
# second one asks for the same in German.
_QUERIES = {
    "mini-en": "mean and standard deviation",
    "mini-multi": "Mittelwert und Standardabweichung",
}
# Seconds of the training without its steps: TensorFlow's import, compilation, validation.
TRAINING_START_SECONDS = 50
# Fewer steps teach too little to show.
LEAST_STEPS_SHARE = 0.3


@dataclasses.dataclass(frozen=True)
class DemoRequest:
    """The text, the time and the folder of the demo.

    Attributes:
      text: text files, folders or glob patterns, separated by commas, to learn from instead of the
        docstrings of the installed packages. Default: the docstrings.
      documents_by: where a document of --text ends. Only sentences of one document make pairs.
      start: encoder to train on, by name or folder; or `random`: a new one with a vocabulary of the
        text, for text that is not English.
      minutes: time for the whole demo. Where all steps of the experiment would take longer, by the
        pace of the stages before the training, it trains for fewer. Of the docstrings only: how
        long other text takes to read says little about the machine.
      work_dir: folder for everything that the demo makes.
      params_override: overrides of the experiment, a.b=1,c.d=2. It is `demo_start`, from random
        weights `demo`.
    """

    text: str = ""
    documents_by: Annotated[str, OneOf(("blank_line", "file"))] = "blank_line"
    start: str = "mini-en"
    minutes: Annotated[float, at_least(0.1)] = 5.0
    work_dir: str = "build"
    params_override: str = ""


def define_flags() -> None:
    """Defines the flags of the request."""
    cli.define(DemoRequest)


def main() -> None:
    """Runs the demo."""
    # Each stage would report only what it misses itself, one after the other.
    check_extra("demo", "matplotlib", "sentencex", "tensorflow_hub", "zstandard")
    request = cli.read(DemoRequest)
    check_writable(request.work_dir, is_folder=True)
    started = time.monotonic()
    name = (
        f"text-{hashlib.sha256(request.text.encode()).hexdigest()[:8]}" if request.text else "demo"
    )
    folder = Path(request.work_dir) / name
    from_random = request.start == RANDOM
    start = "" if from_random else str(encoder_directory_of(find_encoder(request.start)).path)
    # Seconds of each stage on two cores of a 2.5 GHz Xeon, without and with an encoder of the size
    # of mini-en to start from.
    seconds = [20, 1, 12, 2, 12, 2] if not request.text else [1]
    seconds += [5, 8, 6, 210, 16, 20, 14] if from_random else [8, 6, 265, 25, 20, 19]
    with Runner(folder, "demo") as runner:
        _run(request, Stages(runner, seconds), folder, start)
    print(f"demo: {time.monotonic() - started:.0f} s in all; everything is in {folder}/")


def _run(request: DemoRequest, stages: Stages, folder: Path, start: str) -> None:
    """Runs the stages; `start` is the encoder to train on, empty for random weights."""
    run, overwrite = stages.run, {"overwrite": True}
    source = request.text or folder / "docstrings.jsonl"
    if request.text:
        stages.depends_on(expand_inputs(request.text.split(",")))
    else:
        title = "docstrings of the installed packages"
        run(title, source, "data_prep.docstrings", output=source, **overwrite)
    train, held_out = folder / "train.jsonl", folder / "held_out.jsonl"
    outputs = {"train_output": train, "held_out_output": held_out, **overwrite}
    division = {"share": HELD_OUT_SHARE, "documents_by": request.documents_by}
    run("hold documents out", held_out, "data_prep.hold_out", input=source, **division, **outputs)
    if not request.text:
        for name, query in _QUERIES.items():
            title, index = f"index by {name}, which ships", folder / f"{name}.index"
            form = {"input": held_out, "column": "text", "model": name}
            run(title, index, "export.search.index", index=index, **form)
            question = {"index": index, "query": query, "k": 3}
            run(f"search for {query!r}", None, "export.search.search", **question)
    vocabulary = start or folder / "vocabulary" / "vocab.txt"
    if not start:
        size = {"vocab_size": VOCAB_SIZE, **overwrite}
        title, program = "WordPiece vocabulary", "data_prep.build_vocab"
        run(title, vocabulary, program, input=train, output=vocabulary, **size)
    records = {split: folder / "records" / split for split in ("training", "held_out")}
    for (split, output), text in zip(records.items(), (train, held_out)):
        # The report compares with TF-IDF, which reads text.
        files = {"input": text, "vocab_file": vocabulary, "output_dir": output, "keep_text": True}
        title = f"{split.replace('_', '-')} records"
        run(title, output, "data_prep.create_documents", **files, **overwrite)
    model, report, modules = folder / "model", folder / "report", folder / "tfhub"
    experiment = "demo_start" if start else "demo"
    run(
        "training",
        model,
        "experiments.train",
        experiment=experiment,
        mode="train_and_eval",
        init_checkpoint=start,
        model_dir=model,
        params_override=_make_overrides(request, stages, experiment, records),
    )
    folders = {f"{split}_records": output for split, output in records.items()}
    folders |= {"model_dir": model, "start": start, "output_dir": report}
    run("figure and number", None, "experiments.demo.report", **folders)
    # The modules pad each text to this length, which is that of the training.
    options = {"export_dir": modules, "seq_length": 32, **overwrite}
    run("TF-Hub modules", modules, "export.export_tfhub", model_dir=model, **options)
    # The program runs as a file, not as a module: like a TF-Hub user's, it must not see the
    # checkout. Its own queries are about programming; other text is asked for its own kind.
    program, title = Path(__file__).with_name("search.py"), "semantic search through hub.KerasLayer"
    queries = report / "queries.txt" if request.text else None
    texts = report / "held_out_sentences.txt"
    run(title, None, program, modules=modules, texts=texts, queries=queries)


def _make_overrides(
    request: DemoRequest, stages: Stages, experiment: str, records: dict[str, Path]
) -> str:
    """Returns the training's overrides: its records, and the steps that time is left for."""
    settings = registry.experiment_files()[experiment]
    stages.depends_on([str(settings)])
    overrides = [
        f"task.train_data.input_path={records['training']}",
        f"task.validation_data.input_path={records['held_out']}",
        *filter(None, [request.params_override]),
    ]
    if not request.text and "trainer.train_steps" not in request.params_override:
        overrides.append(f"trainer.train_steps={_choose_steps(stages, settings, request.minutes)}")
    return ",".join(overrides)


def compute_training_share(taken: Sequence[float], seconds: Sequence[int], budget: float) -> float:
    """Returns the share of the training that leaves time for the stages after it.

    Args:
      taken: seconds of each stage before the training.
      seconds: typical seconds of all stages, on a machine of another pace.
      budget: seconds for all stages.

    Returns:
      At least `LEAST_STEPS_SHARE`, at most 1.
    """
    training, *after = seconds[len(taken) :]
    pace = sum(taken) / sum(seconds[: len(taken)])
    left = budget - sum(taken) - pace * (TRAINING_START_SECONDS + sum(after))
    share = left / (pace * (training - TRAINING_START_SECONDS))
    return min(1.0, max(LEAST_STEPS_SHARE, share))


def _choose_steps(stages: Stages, experiment: Path, minutes: float) -> int:
    """Returns the steps of the training that fit into the time left, and prints the reason."""
    trainer = yaml.safe_load(experiment.read_text(encoding="utf-8"))["trainer"]
    # A second run reuses the stages and their seconds, and so has the same steps.
    share = compute_training_share(stages.durations, stages.seconds, 60 * minutes)
    loop = trainer["steps_per_loop"]
    steps = max(1, int(share * trainer["train_steps"] / loop)) * loop
    if share == 1:
        why = "all of the experiment"
    elif share == LEAST_STEPS_SHARE:
        why = f"the least that teach something; all together may take more than {minutes:g} min"
    else:
        why = f"what --minutes={minutes:g} leaves time for"
    print(f"training for {steps} steps: {why}", flush=True)
    return steps


if __name__ == "__main__":
    define_flags()
    cli.run(main)
