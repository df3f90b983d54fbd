"""Makes a small, fast encoder that follows a large one: `cmlm distil`.

    cmlm distil all-MiniLM-L6-v2 --static --to=work/small
    cmlm distil all-MiniLM-L6-v2 --input='my/*.txt' --to=work/small

With --static the student is a table of words: its vector is the weighted mean of a text's entries.
The table begins as the teacher's vectors of its vocabulary (Tulkens and van Dongen 2024,
"Model2Vec"), and without text that is all. Otherwise the student begins as some blocks of the
teacher. With text a training makes its vectors follow those of the teacher (Reimers and Gurevych
2020); some sentences are held out to measure how well they do. It reads texts without prompts.
The output is an encoder directory. The folder `OUTPUT.work` next to it has the records and the
training, with which a second run goes on.
"""

import dataclasses
import hashlib
import heapq
import os
from pathlib import Path
from typing import Annotated, Any

from official_cmlm import cli
from official_cmlm.checkpoints.encoder_weights import WEIGHT_FORMS
from official_cmlm.common.errors import UserError
from official_cmlm.common.job import PLAN
from official_cmlm.common.validation import OneOf, at_least
from official_cmlm.configs.encoder import EncoderConfig

from . import registry
from .adapt import find_places, run_training
from .runner import Runner, Stages

# Share of the sentences that is held out, and most of them that are compared.
_HELD_OUT, _MOST_HELD_OUT = 0.05, 1000
# Most bytes of text that a training reads, drawn from more: 15 minutes with --static on two cores.
_MOST_BYTES = {True: 10_000_000, False: 25_000_000}
# Columns of the table, as Tulkens and van Dongen have principal components.
_COLUMNS = 256
_MOST_BLOCKS = 3


@dataclasses.dataclass(frozen=True)
class Distillation:
    """The teacher, its student, and the texts that the student learns from.

    Attributes:
      teacher: encoder to follow: a folder, an encoder that ships, an installed package of weights,
        such as all-MiniLM-L6-v2, or a name org/model of the Hugging Face hub.
      output_dir: folder for the encoder. Records and training are in another that ends in .work.
      input: text files, folders or glob patterns, separated by commas. Default: no training, with
        --static only.
      static: whether the student is a table of words without Transformer blocks.
      layers: blocks of the teacher that the student begins as, from 0. Default: every second one,
        up to three.
      vocab_size: entries of a WordPiece or SentencePiece vocabulary to keep, the most frequent in
        --input. Default: all.
      weights: how weights are stored; int8 takes a quarter of the bytes.
      language: language of the text, a BCP-47 tag.
      params_override: overrides of the experiment recipes/distil, or with --static
        recipes/distil_static, a.b=1,c.d=2.
    """

    teacher: str
    output_dir: str
    input: str = ""
    static: bool = False
    layers: tuple[str, ...] = ()
    vocab_size: Annotated[int, at_least(0)] = 0
    weights: Annotated[str, OneOf(WEIGHT_FORMS)] = "int8"
    language: str = "en"
    params_override: str = ""

    def __post_init__(self) -> None:
        if self.static and self.layers:
            raise UserError("--layers: --static is without blocks; leave one of them out")
        if not self.static and not self.input:
            raise UserError("--input: name text to learn from, or give --static, which needs none")
        for name in ("vocab_size", "params_override"):
            if getattr(self, name) and not self.input:
                raise UserError(f"--{name}: needs text; give --input, or leave it out")
        if self.input.lower().endswith((".csv", ".tsv", ".parquet")):
            raise UserError(f"{self.input}: a table; give text, or JSON lines with a field text")

    def choose_start(self, teacher: EncoderConfig) -> dict[str, Any]:
        """Returns the flags of `cmlm shrink` that make the student of this teacher."""
        if self.static:
            columns = min(_COLUMNS, teacher.embedding_size)
            return {"layers": ["none"], "hidden_size": columns, "table": "vectors"}
        every_second = map(str, range(0, teacher.num_layers, 2))
        return {"layers": list(self.layers) or list(every_second)[:_MOST_BLOCKS]}


def define_flags() -> None:
    """Defines the flags of `Distillation`."""
    cli.define(Distillation)


def main() -> None:
    """Runs the binary."""
    options = cli.read(Distillation)
    output, folder = find_places(options.output_dir)
    if output.exists() and not (options.input and (folder / PLAN).exists()):
        raise UserError(f"{options.output_dir}: exists; name another --output_dir")
    from official_cmlm.checkpoints.find_encoder import encoder_directory_of, find_encoder
    from official_cmlm.encoding.shrink import Shrinking, ShrinkRequest, write

    directory = encoder_directory_of(find_encoder(options.teacher))
    start = options.choose_start(directory.config)
    lists = {name: tuple(value) for name, value in start.items() if isinstance(value, list)}
    counted = {"vocab_size": options.vocab_size, "input": (options.input,)}
    lists |= counted if options.vocab_size else {}
    # The student reads texts without the teacher's prompts.
    form = {"drop_head": True, "drop_prompts": True, "weights": options.weights}
    form["compatible_with"] = options.teacher
    made = Shrinking(**(start | lists), **form)
    made.check(options.teacher, directory.config, directory.vocabulary)
    made.blocks(directory.config.num_layers)
    source = options.teacher
    if options.input:
        with Runner(folder, "distil") as runner:
            source = str(train(runner, options, start))
        made = Shrinking(**form)
    write(source, ShrinkRequest(options.output_dir, made, overwrite=True))
    if options.input:
        report(options, folder / "held_out.jsonl")


def train(runner: Runner, options: Distillation, start: dict[str, Any]) -> Path:
    """Trains the student, and returns its folder."""
    from official_cmlm.common.input_files import expand_inputs

    files = expand_inputs(options.input.split(","))
    cli.import_tensorflow()
    # A wrong override is found before the stages.
    recipe = "recipes/distil_static" if options.static else "recipes/distil"
    config = registry.load(recipe, None, options.params_override)
    # Rough seconds on two cores, of 10 MB of text and a teacher of MiniLM's size.
    stages = Stages(runner, [20, 30, 40, 300, 400 if options.static else 2000])
    stages.depends_on(files)
    names = ("train.jsonl", "held_out.jsonl", "start", "records", "taught")
    text, held_out, student, records, taught = (runner.folder / name for name in names)
    # More text than the training reads is held out too.
    most = _MOST_BYTES[options.static] / max(1, sum(map(os.path.getsize, files)))
    share = {"share": max(_HELD_OUT, 1 - most), "sentences": True, "overwrite": True}
    outputs = {"train_output": text, "held_out_output": held_out, "language": options.language}
    stages.run("sentences", text, "data_prep.hold_out", input=options.input, **outputs, **share)
    cut = {"vocab_size": options.vocab_size, "input": text} if options.vocab_size else {}
    form = {"model": options.teacher, "output_dir": student, "drop_head": True, **start, **cut}
    stages.run("the student's start", student, "official_cmlm.encoding.shrink", **form)
    form = {"vocab_file": student, "keep_text": True, "output_dir": records}
    stages.run("records", records, "data_prep.create_documents", input=text, **form)
    model = {"model": options.teacher, "max_seq_length": config.task.train_data.seq_length}
    files = {"records": records, "output_dir": taught, "keep_text": False}
    stages.run("the teacher's vectors", taught, "data_prep.add_vectors", **files, **model)
    return run_training(stages, recipe, config, student, taught, options.params_override)


def report(options: Distillation, held_out: Path) -> None:
    """Prints how near the student's vectors of held-out sentences are to the teacher's."""
    import numpy as np

    from official_cmlm.common.text_files import Reading, read_rows
    from official_cmlm.encoding.sentence_encoder import SentenceEncoder
    from official_cmlm.vectors.embeddings import unit

    texts = {row.text for row in read_rows(str(held_out), Reading())}
    drawn = heapq.nsmallest(
        _MOST_HELD_OUT, texts, key=lambda text: hashlib.sha256(text.encode()).digest()
    )
    student, teacher = (
        unit(SentenceEncoder.load(model).encode(drawn, on_long="ignore"))
        for model in (options.output_dir, options.teacher)
    )
    print(
        f"{len(drawn)} held-out sentences: their vectors have a mean cosine of "
        f"{np.mean(np.sum(student * teacher, axis=1)):.3f} with those of {options.teacher}"
    )


if __name__ == "__main__":
    define_flags()
    cli.run(main)
