"""Adapts an encoder to texts of a domain: `cmlm adapt`.

    cmlm adapt 'my/*.txt' --model=all-MiniLM-L6-v2 --to=work/mine
    cmlm adapt my/pairs.csv --model=all-MiniLM-L6-v2 --columns=question,answer --to=work/mine
    cmlm adapt my/mails.csv --model=all-MiniLM-L6-v2 --columns=body --label_column=topic \
        --to=work/mine
    cmlm adapt my/graded.csv --model=all-MiniLM-L6-v2 --columns=sentence,other \
        --score_column=score --score_max=5 --to=work/mine

The training needs pairs of texts that belong together. A table holds them; in running text, a
heading or first sentence belongs to the text after it. A hard negative of each pair, a text that
the encoder puts near its first one, is found among the other pairs. Two things make the encoder
forget less: the training keeps each text's vector near the vector before, and the result is a mean
of the weights before and after (Wortsman et al. 2022, "Robust fine-tuning of zero-shot models").
An encoder that has prompts, such as `query: ` and `passage: `, is trained and compared with them.
Some pairs are held out to compare the encoders before and after: how often does each find a pair's
second text?
With labels the encoder is trained with a classifier. With scores it learns how similar the texts of
a pair are; the correlation with the scores of held-out pairs is printed.
The output is an encoder directory. The folder `OUTPUT.work` next to it has the records and the
training, with which a second run goes on; with labels a second run begins anew.
"""

import dataclasses
import functools
import hashlib
import heapq
import json
import operator
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import yaml
from absl import flags

from official_cmlm import cli
from official_cmlm.common import progress
from official_cmlm.common.errors import UserError, list_names
from official_cmlm.common.files import atomic_write, atomic_write_text, check_writable
from official_cmlm.common.job import PLAN
from official_cmlm.common.validation import OneOf, between
from official_cmlm.records.pairs import SCALE_END, check_scale, scale_score

from . import registry
from .runner import Runner, Stages

# One of _HELD_OUT_SHARE pairs or labelled texts is held out, at most _MOST_HELD_OUT of them, and
# none if they would be fewer than _LEAST_HELD_OUT.
_HELD_OUT_SHARE, _MOST_HELD_OUT, _LEAST_HELD_OUT = 20, 1000, 20
# Most times that the training sees a pair; it would learn pairs by heart if it saw them more.
_MOST_EPOCHS = 4
# Ranks of the texts near an anchor, one of which is its hard negative. The nearest ones are passed
# over, as they may be right answers too.
_NEGATIVES = {"range_min": 5, "range_max": 30, "sampling": "random"}
# Most labels that are listed before a training.
_MOST_LABELS = 20
_RECIPE, _SCORED_RECIPE = "recipes/pairs", "recipes/scores"


@dataclasses.dataclass(frozen=True)
class Adaptation:
    """The texts that an encoder is adapted to, and the output.

    Attributes:
      input: text files, folders or glob patterns; or with --columns one table (.csv, .tsv, .jsonl,
        .json or .parquet).
      output_dir: folder for the encoder. Records and training are in another that ends in .work.
      columns: two columns of the table: a text, and one that belongs to it. With --label_column
        one.
      label_column: column with the label of each text, for a classifier.
      score_column: column with a score, how similar both texts of a pair are.
      score_min: the score of texts that have nothing in common, the least that there may be.
      score_max: the score of texts that say the same, the largest that there may be.
      roles: roles of a pair's first and second text, such as query,query, whose prompts in the
        encoder they get. Default: without scores query,document where the encoder has a prompt
        for one of these; else its default prompt, if any.
      documents_by: where a document of a text file ends.
      language: language of the text, a BCP-47 tag.
      keep: share of the weights before in the mean; 0: the trained weights alone. Not for labels.
      params_override: overrides of the experiment recipes/pairs, or with --score_column
        recipes/scores, a.b=1,c.d=2.
    """

    input: tuple[str, ...]
    output_dir: str
    columns: tuple[str, ...] = ()
    label_column: str = ""
    score_column: str = ""
    score_min: Annotated[float, SCALE_END] = 0.0
    score_max: Annotated[float, SCALE_END] = 1.0
    roles: tuple[str, ...] = ()
    documents_by: Annotated[str, OneOf(("blank_line", "file"))] = "file"
    language: str = "en"
    keep: Annotated[float, between(0, 1)] = 0.3
    params_override: str = ""

    @property
    def table(self) -> str:
        """The one table, where columns are named."""
        return ",".join(self.input)

    @property
    def all_columns(self) -> list[str]:
        """The columns to read, that of labels or of scores last."""
        return [*self.columns, *filter(None, [self.label_column, self.score_column])]

    @property
    def score_range(self) -> tuple[float, float] | None:
        """The ends of the scale of the last column; None if it has no scores."""
        return (self.score_min, self.score_max) if self.score_column else None

    def __post_init__(self) -> None:
        if self.label_column and self.score_column:
            raise UserError("--label_column and --score_column: train in different ways; name one")
        columns = self.all_columns
        number = 3 if self.score_column else 2
        if columns and not len(columns) == len(set(columns)) == number:
            raise UserError(
                f"--columns={','.join(self.columns)}: name two, as in title,body, or one with "
                "--label_column; each column once"
            )
        check_scale(self.score_column, self.score_min, self.score_max)
        for name in ("params_override", "roles"):
            if self.label_column and getattr(self, name):
                raise UserError(f"--{name}: is for pairs; leave it out with --label_column")
        if not columns and self.table.lower().endswith((".csv", ".tsv", ".parquet")):
            raise UserError(
                f"{self.table}: a table; name its columns, as --columns=question,answer or "
                "--columns=text --label_column=label"
            )


def define_flags() -> None:
    """Defines the encoder and the flags of `Adaptation`."""
    cli.define_model_name()
    cli.define(Adaptation)


def hold_out(
    table: str,
    columns: list[str],
    folder: Path,
    most: int | None = None,
    score_range: tuple[float, float] | None = None,
) -> tuple[Path, list[list[str]]]:
    """Writes the rows to train on as JSON lines; returns their file and the held-out rows.

    Hashes decide, so a second call does the same. Rows with an empty cell are left out.

    Args:
      table: a table of one of the formats of `text_files`.
      columns: the columns to read.
      folder: folder for the file.
      most: rows to train on, drawn from all of the table if it has more; None: all of them.
      score_range: ends of the scale of the last column, if it has scores.

    Raises:
      UserError: as `text_files.read_cells` does; for a score outside of its scale; without rows.
    """
    from official_cmlm.common.text_files import open_file, read_cells

    held_out: list[list[str]] = []

    def write(cells: list[str]) -> bytes:
        return json.dumps(dict(zip(columns, cells))).encode() + b"\n"

    def read_rows(file: Any) -> Iterator[tuple[bytes, int, bytes]]:
        """Yields hash, place and line of each row that is not held out."""
        score_column = columns[-1] if score_range else ""
        for place, (where, cells) in enumerate(read_cells(table, file, columns, score_column)):
            if score_range:
                scale_score(cells[-1], f'{where}: "{columns[-1]}"', *score_range)
            digest = hashlib.sha256(cells[0].encode("utf-8", "replace")).digest()
            is_drawn = int.from_bytes(digest[:8]) % _HELD_OUT_SHARE == 0
            if is_drawn and len(held_out) < _MOST_HELD_OUT:
                held_out.append(cells)
            else:
                line = write(cells)
                yield hashlib.sha256(line).digest(), place, line

    with open_file(table) as file:
        rows = read_rows(file)
        drawn = list(rows) if most is None else heapq.nsmallest(most, rows)
    lines = [line for _, _, line in sorted(drawn, key=lambda row: row[1])]
    if len(held_out) < _LEAST_HELD_OUT:
        lines = [*lines, *map(write, held_out)][:most]
        held_out = []
    if not lines:
        raise UserError(f"{table}: no row has a text in {' and '.join(columns)}; check the table")
    # The number is in the name, so that stages which read another number run again.
    path = folder / f"train_{len(lines)}.jsonl"
    with atomic_write(path) as output:
        output.writelines(lines)
    return path, held_out


def choose_roles(
    start: Path, options: Adaptation, length: int
) -> tuple[list[str], tuple[str, ...]]:
    """Returns the roles of a pair's texts, none without prompts, and the prompts of both texts.

    Args:
      start: the encoder directory whose prompts they are.
      options: may name roles.
      length: tokens that the training reads of a text, its prompt and special tokens included.

    Raises:
      UserError: for a role without a prompt, or prompts that leave less than half of the length.
    """
    from official_cmlm.checkpoints.encoder_directory import EncoderDirectory
    from official_cmlm.encoding.sentence_encoder import find_prompt, read_prompts
    from official_cmlm.tokenization import build_tokenizer

    directory, retrieval = EncoderDirectory.open(start), ("query", "document")
    settings, roles = directory.settings, options.roles
    if not roles and not options.score_column:
        has_prompt = any(find_prompt(settings.prompts, role) for role in retrieval)
        roles = retrieval if has_prompt else ()
    if not roles and settings.default_prompt:
        roles = (settings.default_prompt_name,) * 2
    if not roles:
        return [], ("", "")
    prompts = read_prompts(start, roles)
    longest = max(map(len, build_tokenizer(directory.vocabulary).tokenize(prompts).to_list()))
    if 2 * longest > length:
        raise UserError(
            f"{start}: its prompt has {longest} tokens, more than half of the {length} that the "
            f"training reads; pass --params_override=task.train_data.seq_length={length + longest}"
        )
    return list(roles), prompts


def fit_to_few(folder: Path, config: Any) -> Path:
    """Writes a file into `folder` with the batch size and steps for its records; returns its path.

    Where pairs are few, both are smaller than those of `config`, the training's experiment.
    """
    from official_cmlm.records.manifest import load_manifest

    pairs, loop = load_manifest(folder / "records").records, config.trainer.steps_per_loop
    size = min(config.task.train_data.global_batch_size, pairs)
    steps = max(1, _MOST_EPOCHS * pairs // (size * loop)) * loop
    settings = {"task": {"train_data": {"global_batch_size": size}}}
    if steps < config.trainer.train_steps:
        settings["trainer"] = {"train_steps": steps}
    atomic_write_text(folder / "few_pairs.yaml", yaml.safe_dump(settings))
    return folder / "few_pairs.yaml"


def run_training(
    stages: Stages, recipe: str, config: Any, start: Path, records: Path, overrides: str
) -> Path:
    """Runs the training, the last stage, and returns its folder.

    Args:
      stages: those of the job; its folder, which has `records`, gets `training`.
      recipe, config: name and content of the experiment.
      start: the encoder directory that it starts from.
      records: what it reads.
      overrides: of the experiment, a.b=1,c.d=2.
    """
    trained = records.with_name("training")
    values = {"experiment": recipe, "mode": "train", "init_checkpoint": start, "data": records}
    values |= {"config_file": fit_to_few(records.parent, config), "params_override": overrides}
    stages.run("training", trained, "experiments.train", model_dir=trained, **values)
    return trained


def average(start: Path, trained: Path, share: float, output: Path) -> None:
    """Writes an encoder directory of mean weights, in which `start` has a share."""
    from official_cmlm.checkpoints.encoder_arrays import EncoderWeights
    from official_cmlm.checkpoints.encoder_directory import (
        EncoderDirectory,
        describe,
        output_directory,
    )
    from official_cmlm.checkpoints.encoder_weights import read_weights, write_weights
    from official_cmlm.common.files import stage_folder

    directory = EncoderDirectory.open(trained)
    before, after = read_weights(EncoderDirectory.open(start)), read_weights(directory)
    encoder = {
        name: share * before.encoder[name] + (1 - share) * array
        for name, array in after.encoder.items()
    }
    layers = [
        tuple(share * old + (1 - share) * new for old, new in zip(*pairs, strict=True))
        for pairs in zip(before.projection, after.projection, strict=True)
    ]
    with stage_folder(output_directory(output, overwrite=True)) as partial:
        length, settings = directory.max_seq_length, directory.settings
        describe(partial, after.config, directory.vocabulary, length, encoding=settings)
        write_weights(partial, EncoderWeights(after.config, encoder, layers))


def train_classifier(start: Path, options: Adaptation, folder: Path, output: Path) -> None:
    """Trains the encoder with a classifier, saves both, and prints the gain.

    The classifier begins as a logistic regression on the starting encoder's vectors, so that few
    examples need not be spent on finding it (Kumar et al. 2022, "Fine-tuning can distort pretrained
    features").
    """
    cli.quiet_tensorflow()
    import numpy as np
    from sklearn.linear_model import LogisticRegression

    from official_cmlm.common.files import write_json
    from official_cmlm.encoding.classifier import SCORES_NAME, Classifier
    from official_cmlm.encoding.fine_tuning import fine_tune
    from official_cmlm.encoding.sentence_encoder import SentenceEncoder

    table, held_out = hold_out(options.table, options.all_columns, folder)
    with open(table, encoding="utf-8") as file:
        texts, labels = zip(*(json.loads(line).values() for line in file))
    classes, numbers = np.unique(labels, return_inverse=True)
    names = tuple(classes.tolist())
    if len(names) < 2:
        raise UserError(f"{options.table}: all texts have the label {names[0]!r}; give two or more")
    cli.announce(describe_labels(labels, len(held_out)))
    encoder = SentenceEncoder.load(start)
    layer = LogisticRegression(C=10.0, max_iter=1000).fit(encoder.encode(list(texts)), numbers)
    kernel, bias = layer.coef_.T, layer.intercept_
    if len(names) == 2:
        # Scikit-learn has one column for two classes.
        kernel, bias = np.hstack([0 * kernel, kernel]), np.array([0.0, bias[0]])
    before = Classifier(encoder, kernel, bias, names)
    after = fine_tune(
        start, list(texts), numbers, len(names), seed=0, progress=count_steps, before=before
    )
    after.save(output)
    if held_out:
        texts, labels = zip(*held_out)
        first, second = (
            100 * np.mean(np.equal(classifier.predict_names(texts), labels))
            for classifier in (before, after)
        )
        print(
            f"{len(texts)} held-out texts: {first:.1f} % labelled right by a classifier of the "
            f"vectors before, {second:.1f} % after"
        )
        scores = {"right": f"{second:.1f} %", "before training": f"{first:.1f} %"}
        write_json(output / SCORES_NAME, {"held-out texts": len(texts)} | scores)


def describe_labels(labels: Sequence[str], held_out: int) -> str:
    """Returns the line about a table that is printed before a training.

    >>> describe_labels(["b", "a", "b"], 0)
    '3 rows with a text and a label: 3 to train on, 0 held out; 2 labels: b 2, a 1'
    """
    counts = Counter(labels)
    listed = [f"{label} {count}" for label, count in counts.most_common()]
    return (
        f"{len(labels) + held_out} rows with a text and a label: {len(labels)} to train on, "
        f"{held_out} held out; {len(counts)} labels: {list_names(listed, _MOST_LABELS)}"
    )


def count_steps(total: int, first: int = 2, timed: int = 10) -> Callable[[int], None]:
    """Returns a function that takes the steps done, and moves a bar.

    After some steps it says how long all of them take. The first ones, which compile, do not count.
    """
    move, done, began = progress.counter(total, "step", "training"), 0, 0.0

    def count(steps: int) -> None:
        nonlocal done, began
        done += steps
        if done == first:
            began = time.monotonic()
        elif done == first + timed:
            seconds = (time.monotonic() - began) / timed * total
            cli.announce(f"{total} steps, which take about {progress.in_words(seconds)}")
        move(steps)

    return count


def report(start: Path, trained: Path, held_out: list[list[str]]) -> None:
    """Prints how well both encoders find the second text of a held-out pair, and how often first.

    The texts have their prompts already, as have those of `report_scores`.
    """
    from official_cmlm.encoding.sentence_encoder import SentenceEncoder
    from official_cmlm.evaluation.data.beir import make_of_pairs
    from official_cmlm.evaluation.embedding_cache import CachedEncoder
    from official_cmlm.evaluation.metrics.nearest import next_sentence_recall

    from .compare import compare

    # Both measures embed the same texts.
    encoders = {
        name: CachedEncoder(functools.partial(SentenceEncoder.load(path).encode, prompt=""))
        for name, path in (("before", start), ("after", trained))
    }
    print(*compare(encoders, make_of_pairs(held_out)), sep="\n")
    first, second = zip(*held_out)
    before, after = (
        100 * next_sentence_recall(encode, first, second) for encode in encoders.values()
    )
    print(
        f"the text that belongs to one, found first among {len(first)} held-out ones: "
        f"{before:.1f} % before, {after:.1f} % after"
    )


def report_scores(start: Path, trained: Path, held_out: list[list[str]]) -> None:
    """Prints how well the cosines of both encoders follow the scores of held-out pairs."""
    import numpy as np

    from official_cmlm.encoding.sentence_encoder import SentenceEncoder
    from official_cmlm.evaluation.data.sts import ScoredPairs
    from official_cmlm.evaluation.metrics.similarity import similarity_spearman

    first, second, scores = zip(*held_out)
    pairs = ScoredPairs(list(first), list(second), np.array(scores, float))
    before, after = (
        similarity_spearman(functools.partial(encoder.encode, prompt=""), pairs)
        for encoder in map(SentenceEncoder.load, (start, trained))
    )
    print(
        f"Spearman's correlation (x 100) with the scores of {len(first)} held-out pairs: "
        f"{before:.1f} before, {after:.1f} after"
    )


def find_places(output_dir: str) -> tuple[Path, Path]:
    """Returns the output and the folder of its work; raises `UserError` if one cannot be made."""
    output = Path(os.path.abspath(os.path.expanduser(output_dir)))
    check_writable(output, is_folder=True)
    if not output.name:
        raise UserError(f"--output_dir={output_dir}: has no name of its own; name a folder")
    folder = output.with_name(f"{output.name}.work")
    check_writable(folder, is_folder=True)
    return output, folder


def main() -> None:
    """Runs the binary."""
    options = cli.read(Adaptation)
    output, folder = find_places(options.output_dir)
    from official_cmlm.checkpoints.encoder_directory import output_directory
    from official_cmlm.checkpoints.find_encoder import encoder_directory_of, find_encoder

    start = encoder_directory_of(find_encoder(flags.FLAGS.model)).path
    if output.exists() and (options.label_column or not (folder / PLAN).exists()):
        raise UserError(f"{options.output_dir}: exists; name another --output_dir")
    # A classifier of an earlier run with labels is refused before the stages.
    output_directory(output, overwrite=True)
    with Runner(folder, "adapt") as runner:
        if options.label_column:
            train_classifier(start, options, folder, output)
        else:
            train_on_pairs(runner, start, options, output)
    print(options.output_dir)


def train_on_pairs(runner: Runner, start: Path, options: Adaptation, output: Path) -> None:
    """Trains on the pairs of a table, or of running text where no columns are named."""
    from official_cmlm.common.input_files import expand_inputs

    cli.import_tensorflow()
    # A wrong override is found before the stages.
    recipe = _SCORED_RECIPE if options.score_column else _RECIPE
    config = registry.load(recipe, None, options.params_override, str(start))
    retrieval, data = config.task.objectives.bitext_retrieval, config.task.train_data
    is_mined = retrieval is not None and retrieval.hard_negatives
    roles, prompts = choose_roles(start, options, data.seq_length)
    prompted = {"roles": roles} if roles else {}
    is_anchored = config.task.objectives.pair_distillation is not None
    # Rough seconds on two cores, of 10 MB of text and an encoder of MiniLM's size.
    seconds = [10] * (not options.columns) + [180] * is_mined + [10] + [180] * is_anchored
    stages, folder = Stages(runner, [*seconds, 1000 if is_mined else 660]), runner.folder
    stages.depends_on(expand_inputs([*options.input]))
    table, columns = options.table, options.all_columns
    if not columns:
        table, columns = folder / "pairs.jsonl", ["title", "body"]
        form = {"documents_by": options.documents_by, "language": options.language, "output": table}
        title, program = "pairs of titles and bodies", "data_prep.title_pairs"
        names = flags.CsvListSerializer(",").serialize(options.input)
        stages.run(title, table, program, input=names, **form)
    # More pairs than the training reads would be mined and encoded in vain.
    is_counted = config.trainer.train_epochs is None
    most = config.trainer.train_steps * data.global_batch_size if is_counted else None
    pairs, held_out = hold_out(str(table), columns, folder, most, options.score_range)
    with pairs.open("rb") as file:
        number = sum(1 for _ in file)
    print(f"{number} pairs to train on, {len(held_out)} held out", flush=True)
    stages.scale(min(1.0, number / (most or number)))
    form = {"format": "table", "columns": columns[:2]}
    if options.score_column:
        names = ("score_column", "score_min", "score_max")
        form |= {name: getattr(options, name) for name in names}
    if is_mined:
        triples, program = folder / "triples.jsonl", "data_prep.mine_negatives"
        mining = {"encoder": start, **_NEGATIVES, "output": triples, **prompted}
        stages.run("hard negatives", triples, program, input=pairs, **form, **mining)
        pairs, form = triples, {"format": "triples"}
    records = folder / "records"
    # Where texts are negatives of each other, one that occurs twice would be its own.
    repeated = "pair" if options.score_column else "either"
    form |= {"vocab_file": start, "repeated": repeated, "drop_empty": True, **prompted}
    files = {"input": pairs, "languages": options.language, "output_dir": records}
    stages.run("records", records, "data_prep.create_pairs", **files, **form)
    if is_anchored:
        taught = folder / "taught"
        model = {"model": start, "max_seq_length": data.seq_length}
        files = {"records": records, "output_dir": taught}
        stages.run("vectors before", taught, "data_prep.add_vectors", **files, **model)
        records = taught
    trained = run_training(stages, recipe, config, start, records, options.params_override)
    average(start, trained, options.keep, output)
    if held_out:
        rows = [[*map(operator.add, prompts, cells), *cells[2:]] for cells in held_out]
        (report_scores if options.score_column else report)(start, output, rows)


if __name__ == "__main__":
    define_flags()
    cli.run(main)
