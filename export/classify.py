"""Labels the texts of tables by a classifier that `cmlm adapt --label_column` has trained.

    cmlm classify mails.csv --column=body --model=work/mine --to=labels.csv

The output has a row for each text: id, text, label and the label's probability. If the table has
right labels too, --label_column names them; the accuracy is printed then, and a line for each label
with the labels that its texts were taken for.
"""

import csv
import dataclasses
import io
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import IO

from absl import flags

from official_cmlm import cli
from official_cmlm.common import progress
from official_cmlm.common.errors import UserError
from official_cmlm.common.files import atomic_write, check_output, report_write_errors
from official_cmlm.common.input_files import expand_inputs, is_remote
from official_cmlm.common.text_files import Reading, Row, list_columns, read_rows

FLAGS = flags.FLAGS
_TEXTS_AT_ONCE = 1024
# Most other labels that are named for the texts of one.
_MOST_NAMED = 5


@dataclasses.dataclass(frozen=True)
class Task:
    """The texts, and the file of their labels.

    Attributes:
      input: files, folders or patterns of texts.
      to: .csv file to write; it appears when it is complete.
      label_column: column of the right labels, if there are any.
      overwrite: whether to replace an existing file.
    """

    input: tuple[str, ...]
    to: str
    label_column: str = ""
    overwrite: bool = False


def define_flags() -> None:
    """Defines the flags: input, output, and the classifier."""
    cli.define_model_name(what="a classifier that `cmlm adapt` made, e.g. --model=work/mine")
    cli.define(cli.Backend)
    cli.define(Task)
    cli.define(Reading, skip={"keep"})


def main() -> None:
    """Runs the binary."""
    task, reading = cli.read(Task), cli.read(Reading)
    paths = expand_inputs(task.input)
    for path in paths:
        if reading.form_of(path) == "text" and task.label_column:
            raise UserError(f"{path}: lines of text have no columns; leave out --label_column")
    check_output(task.to, task.overwrite, [path for path in paths if not is_remote(path)])
    if not task.to.endswith(".csv"):
        raise UserError(f"--to={task.to}: name a .csv file")
    cli.quiet_tensorflow()
    reading = dataclasses.replace(reading, keep=bool(task.label_column))
    with (
        report_write_errors(task.to, "make room, then give the same command again"),
        atomic_write(task.to, replace=task.overwrite) as file,
    ):
        pairs, rows, missing = label(paths, reading, task.label_column, file)
    if missing:
        end = "were left out" if reading.on_missing == "skip" else "have the label of an empty one"
        cli.warn(f"{missing} rows without a text {end}")
    if task.label_column:
        print(f"{pairs.total()} of {rows} rows have a label in {task.label_column}")
    if pairs:
        print(*describe(pairs), sep="\n")
    print(f"{task.to}: labels of {rows} texts")


def label(
    paths: list[str], reading: Reading, column: str, file: IO[bytes]
) -> tuple[Counter[tuple[str, str]], int, int]:
    """Writes the labels of texts as CSV.

    Returns:
      How often which right label was taken for which one, the number of texts, and that of rows
      without a text.

    Raises:
      UserError: the folder of `--model` holds no classifier, or a file has a fault.
    """
    from official_cmlm.checkpoints.find_encoder import find_encoder
    from official_cmlm.encoding.classifier import Classifier

    classifier = Classifier.load(
        find_encoder(FLAGS.model), backend=FLAGS.backend, device=FLAGS.device
    )
    names = [*map(str, classifier.labels)]
    pairs, paths_seen, written, missing = Counter(), set(), 0, 0
    output = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
    writer = csv.writer(output)
    writer.writerow(["id", "text", "label", "probability"])
    rows = enumerate(row for path in paths for row in read_rows(path, reading))
    with progress.bar(None, " texts", "labelling") as bar:
        while chunk := list(islice(rows, _TEXTS_AT_ONCE)):
            missing += sum(row.missing for _, row in chunk)
            chunk = [(number, row) for number, row in chunk if not reading.leaves_out(row)]
            bar.update(len(chunk))
            if not chunk:
                continue
            probabilities = classifier.predict_proba([row.text for _, row in chunk])
            for (number, row), shares in zip(chunk, probabilities):
                name = names[best := int(shares.argmax())]
                identity = number if row.id is None else row.id
                writer.writerow([identity, row.text, name, f"{shares[best]:.4f}"])
                if column and (right := _read_label(row, column, paths_seen)):
                    pairs[right, name] += 1
                written += 1
    output.detach()
    return pairs, written, missing


def _read_label(row: Row, column: str, seen: set[str]) -> str:
    """Returns the right label of a row, empty if it has none; a file's first row has the column."""
    if row.path not in seen and column not in row.others:
        raise UserError(
            f"{row.path}: no column {column!r} beside the text, it has {list_columns(row.others)}; "
            "name one by --label_column"
        )
    seen.add(row.path)
    value = row.others.get(column)
    return "" if value is None else str(value)


def describe(pairs: Counter[tuple[str, str]]) -> Iterator[str]:
    """Yields the accuracy, and a line for each right label with what its texts were taken for.

    >>> print(*describe(Counter({("a", "a"): 3, ("a", "b"): 1, ("b", "b"): 4})), sep="\\n")
    accuracy: 87.5 % of 8 texts with a right label
      a: 4 texts, 75.0 % right; taken for b 1
      b: 4 texts, 100.0 % right
    """
    total = pairs.total()
    right = sum(count for (label, name), count in pairs.items() if label == name)
    yield f"accuracy: {100 * right / total:.1f} % of {total} texts with a right label"
    for label in sorted({label for label, _ in pairs}):
        taken = Counter({name: n for (own, name), n in pairs.items() if own == label})
        total, right = taken.total(), taken.pop(label, 0)
        others = [f"{name} {n}" for name, n in taken.most_common()]
        more = ", …" if len(others) > _MOST_NAMED else ""
        end = f"; taken for {', '.join(others[:_MOST_NAMED])}{more}" if others else ""
        yield f"  {label}: {total} texts, {100 * right / total:.1f} % right{end}"


if __name__ == "__main__":
    define_flags()
    cli.run(main)
