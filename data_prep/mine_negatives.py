"""Finds hard negatives of pairs by an encoder: `cmlm mine-negatives`.

    cmlm mine-negatives --format=tsv --input=pairs.tsv --encoder=work/model --relative_margin=0.05 \
        --to=mined.jsonl
    cmlm create-pairs --format=triples --input=mined.jsonl --languages=en …

A hard negative of a pair is a text that the encoder puts near its anchor, though it is not its
positive: the positive of another pair, or one of --candidates. Known positives of the anchor, and
texts with the letters of one of them or of the anchor, are left out. Texts that would be right
answers too are best excluded by a margin to the positive. Repeated pairs are mined once.
"""

import dataclasses
import itertools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from absl import flags

from official_cmlm import cli
from official_cmlm.common import progress
from official_cmlm.common.errors import UserError
from official_cmlm.common.files import atomic_write, check_output
from official_cmlm.common.validation import Flag

from . import common_flags, mining
from .add_vectors import encode_in_pieces
from .counts import Counts, guard_faults
from .output.report import finish
from .readers.document import ReadOptions, one_space
from .readers.plain_text import iter_lines

if TYPE_CHECKING:
    import numpy as np

    from official_cmlm.evaluation.encoder import OpenedEncoder

FLAGS = flags.FLAGS
# Texts that the encoder gets at a time, so that progress shows.
_TEXTS = 4096


@dataclasses.dataclass(frozen=True)
class Options:
    """The texts and the encoder that negatives are mined with, and the output.

    Attributes:
      candidates: files of further candidates, one text a line.
      encoder: encoder that measures nearness: an encoder directory, a folder of
        export.export_tfhub, a sentence-transformers folder, or package.module:object with
        encode(list of str).
      roles: roles of anchors and of candidates, such as query,document, for which the encoder has
        prompts or methods. Default: all texts are encoded alike, with its default prompt.
      output: file to write, .jsonl or .tsv, which create_pairs --format=triples reads; it appears
        when complete.
      overwrite: whether to replace a file of that name.
      choice: the choice among near texts.
    """

    encoder: Annotated[str, Flag(alias="model")]
    output: str
    candidates: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    overwrite: bool = False
    choice: mining.Mining = dataclasses.field(default_factory=mining.Mining)


def define_flags() -> None:
    """Defines the flags of the pairs, of the encoder and of the mining."""
    common_flags.define_pairs(skip=["label_column", "score_column", "score_min", "score_max"])
    cli.define(Options)


def main() -> int:
    """Runs the binary."""
    options = cli.read(Options)
    if FLAGS.format == "nli":
        raise UserError("--format=nli: pairs with labels; give pairs whose texts belong together")
    languages = FLAGS.languages or ["und"] * len(FLAGS.input or FLAGS.tfds)
    inputs = common_flags.pair_inputs(languages)
    if len({pair_input.languages for pair_input in inputs}) > 1:
        raise UserError(
            f"--languages={','.join(languages)}: pairs of different languages, which the output "
            "cannot tell apart; mine those of each two languages in a run of their own"
        )
    paths = [path for pair_input in inputs for path in pair_input.paths] + [*options.candidates]
    common_flags.check_files(paths, "--input and --candidates")
    output = Path(options.output)
    if output.suffix not in (".jsonl", ".tsv"):
        raise UserError(f"{output}: --output names no form; end it with .jsonl or .tsv")
    check_output(output, options.overwrite, paths)
    reading, counts = cli.read(ReadOptions), Counts()
    # A pair is mined once, even if the input repeats it with several negatives.
    pairs: dict[tuple[str, str], None] = {}
    more, empty, repeated = [], 0, 0
    for pair_input in inputs:
        read = pair_input.read(counts, FLAGS.header, reading)
        for pair in guard_faults(pair_input.name, read, FLAGS.on_error, counts):
            if pair.label is not None:
                raise UserError(
                    f"{pair.where}: has a label; give pairs whose texts belong together, without "
                    "labels"
                )
            if not all(pair.texts):
                empty += 1
                continue
            repeated += pair.texts in pairs
            pairs[pair.texts] = None
            more += [pair.negative] if pair.negative else []
    for path in options.candidates:
        texts = (one_space(line) for *_, line in iter_lines(path, counts, reading))
        more += filter(None, guard_faults(path, texts, FLAGS.on_error, counts))
    counts.raise_if_all_failed(len(inputs) + len(options.candidates))
    if not pairs:
        names = ",".join(FLAGS.input or FLAGS.tfds)
        raise UserError(f"{names}: no usable pair; check --format and --header")
    rows, without, scores = _mine_into(list(pairs), more, options)
    reasons = ((empty, "with an empty text"), (repeated, "repeated"))
    left_out = ", ".join(f"{count} {reason}" for count, reason in reasons if count)
    left_out = f"; left out: {left_out}" if left_out else ""
    return finish(
        f"{output}: {len(pairs)} pairs, {without} of them without a negative, {rows} rows; mean "
        f"cosine of positives {_mean(scores[0])}, of negatives {_mean(scores[1])}{left_out}",
        counts,
        len(paths),
    )


def _mine_into(
    pairs: list[tuple[str, str]], more: list[str], options: Options
) -> tuple[int, int, tuple[list[float], list[float]]]:
    """Writes the file; returns the number of rows, of pairs without a negative, and the cosines."""
    cli.import_tensorflow()
    from official_cmlm.encoding.encoders import open_encoder
    from official_cmlm.evaluation.encoder import Role, check_roles, check_vectors

    opened, output = open_encoder(options.encoder), Path(options.output)
    if options.roles:
        check_roles(options.roles, opened.roles)
    plain = Role(opened.encode, opened.prompt)
    anchor, candidate = (opened.roles.get(name, plain) for name in options.roles or ("", ""))
    anchors, positives = zip(*pairs)
    texts = [anchor.prompt + text for text in anchors]
    _warn_of_cut_texts(opened, texts + [candidate.prompt + text for text in [*positives, *more]])
    embed = [
        _show_progress(check_vectors(role.encode), name)
        for role, name in ((anchor, "anchors"), (candidate, "candidates"))
    ]
    results = mining.mine(pairs, more, *embed, options.choice)
    # All texts are encoded before the first result, so the progress bars of encoding end here.
    first, mined = next(results), {}
    with progress.bar(len(pairs), "pair", "searching") as bar:
        for result in itertools.chain([first], results):
            mined[result.row] = result
            bar.update()
    rows = 0
    output.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(output) as file:
        for row, pair in enumerate(pairs):
            for negative in mined[row].negatives or [None]:
                file.write(_line(pair, negative, output.suffix).encode())
                rows += 1
    without = sum(not result.negatives for result in mined.values())
    positives = [result.positive_score for result in mined.values()]
    return rows, without, (positives, [s for result in mined.values() for s in result.scores])


def _warn_of_cut_texts(opened: "OpenedEncoder", texts: list[str]) -> None:
    """Warns of texts that the encoder cuts, if it can tell."""
    if opened.count_tokens is None or opened.max_seq_length is None:
        return
    longest, several, cut = opened.max_seq_length, list(dict.fromkeys(texts)), 0
    for start in range(0, len(several), _TEXTS):
        cut += int((opened.count_tokens(several[start : start + _TEXTS]) > longest).sum())
    if cut:
        cli.warn(f"{cut} of {len(several)} texts are cut to the encoder's {longest} tokens")


def _line(texts: tuple[str, str], negative: str | None, form: str) -> str:
    if form == ".tsv":
        # The readers made all white space single spaces.
        return "\t".join([*texts, *([negative] if negative else [])]) + "\n"
    row = dict(zip(("anchor", "positive"), texts)) | ({"negative": negative} if negative else {})
    return json.dumps(row, ensure_ascii=False) + "\n"


def _show_progress(encode: mining.Embed, name: str) -> mining.Embed:
    """Returns the encoder with a progress bar."""

    def embed(texts: list[str]) -> "np.ndarray":
        with progress.bar(len(texts), "text", f"encoding {name}") as bar:
            return encode_in_pieces(texts, encode, bar.update)

    return embed


def _mean(values: list[float]) -> str:
    return f"{sum(values) / len(values):.3f}" if values else "–"


if __name__ == "__main__":
    define_flags()
    cli.run(main)
