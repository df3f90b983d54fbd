"""A study: a YAML file that names arms, which are trained with several seeds and compared.

    title: CMLM against MLM                 # of the table and the figure
    seeds: [1, 2, 3]
    data:                                   # runs of data_prep's binaries, in order
      - {name: vocabulary, run: build_vocab, flags: {input: $data/text/en, vocab_size: 8000}}
      - name: books
        run: create_documents
        flags: {input: $data/text/en, vocab_file: $vocabulary/vocab.txt}
    common:                                 # overrides of all arms
      task: {train_data: {input_path: $books}}
    arms:
      - {name: mlm, experiment: mlm/english_base}
      - {name: cmlm, experiment: cmlm/english_base, starts_from: mlm}
    scores:
      suites: [sts]                         # of experiments.evaluate
      set: [sts.subsets=false]
      columns: [{id: sts/STS-B/spearman, label: "STS-B test, Spearman × 100"}]
    baseline: mlm

`$data` stands for the folder of `--data_dir`, `$start` for the encoder directory of `--start`, and
`$name` for what the step `name` of `data` made.
"""

import dataclasses
import difflib
import json
import re
import string
import typing
from pathlib import Path
from typing import Any

from official_cmlm.errors import UserError
from official_cmlm.evaluation.report.papers import paper_tables

# Names that the command line gives: `--data_dir`, `--start`.
GIVEN = ("data", "start")
_STUDIES = Path(__file__).parents[1] / "studies"
# Binary of data_prep -> its flags that name an output, and the file's name in the step's folder;
# empty: the folder itself.
OUTPUTS = {
    "build_vocab": {"output": "vocab.txt"},
    "create_documents": {"output_dir": ""},
    "create_pairs": {"output_dir": ""},
    "prepare": {"output_dir": ""},
    "hold_out": {"train_output": "train.jsonl", "held_out_output": "held_out.jsonl"},
    "random_strings": {"output": "strings.txt"},
    "docstrings": {"output": "docstrings.jsonl"},
}
# What stands before metrics of the training's own validation, as a suite's name before its scores.
VALIDATION = "validation"


@dataclasses.dataclass(frozen=True)
class DataStep:
    """One run of a binary of `data_prep`; what it makes is `$name` in what follows.

    Attributes:
      name: letters, digits and underscores.
      run: the binary, a key of OUTPUTS.
      flags: its flags without those of OUTPUTS; a list is joined with commas. `$name` is a folder:
        `$split/train.jsonl` is the training part of a step `split` that runs `hold_out`.
    """

    name: str
    run: str
    flags: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class PaperRow:
    """A row of a paper's table, by the names that stand in `evaluation.report.papers`."""

    paper: str
    table: str
    row: str


@dataclasses.dataclass(frozen=True)
class Arm:
    """One training of the comparison, with every seed.

    Attributes:
      name: letters, digits, `_` and `-`.
      experiment: an experiment's name.
      params_override: what the arm changes of the experiment; comes after the study's `common`.
      starts_from: name of another arm, whose encoder of the same seed it starts from, or an encoder
        directory, as `$start`. Default: random weights.
      start_seed: of which seed the arm that it starts from is taken. Default: the same.
      train: false scores the encoder as it starts, for example with another `pooling`. Default
        true.
      sentence_vector: what is scored instead of the encoder's own vector, as `--sentence_vector`
        of `experiments.evaluate` has it, e.g. `projected_mean`. Default: its own.
      label: for table and figure. Default: the name.
      paper: rows of papers' tables to show beside it; the first that has a column counts.
    """

    name: str
    experiment: str
    params_override: dict[str, Any] = dataclasses.field(default_factory=dict)
    starts_from: str = ""
    start_seed: int | None = None
    train: bool = True
    sentence_vector: str = ""
    label: str = ""
    paper: list[PaperRow] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Column:
    """A score to show.

    Attributes:
      id: `suite/task/metric` as in `results.json`, or `validation/` and a metric of the training's
        validation, e.g. `validation/mlm/masked_token_accuracy`. Several with `|` between them: the
        first that an arm has.
      label: quantity and unit, of the score times `scale`.
      scale: what scores are multiplied with. Default 1.
      decimals: digits behind the point. Default 1.
    """

    id: str
    label: str
    scale: float = 1.0
    decimals: int = 1

    def value(self, scores: dict[str, float]) -> float | None:
        """The score in the column's unit, None where there is none."""
        found = [scores[i] for i in self.id.split("|") if i in scores]
        return found[0] * self.scale if found else None


@dataclasses.dataclass(frozen=True)
class Scores:
    """How arms are scored.

    Attributes:
      columns: what table and figure show; everything else stays in the JSON files.
      suites: suites of `experiments.evaluate`.
      set: their options, as its `--set`.
      validation: whether trainings validate at their end, for columns `validation/…`. Default
        false.
    """

    columns: list[Column]
    suites: list[str] = dataclasses.field(default_factory=list)
    set: list[str] = dataclasses.field(default_factory=list)
    validation: bool = False


@dataclasses.dataclass(frozen=True)
class Study:
    """A comparison of arms; see the module.

    Attributes:
      title: what is compared.
      seeds: seed s is `task.train_data.seed` of every arm, and so decides initial weights, dropout
        and the order of the data.
      arms: what is compared, each after the one that it starts from.
      scores: how.
      baseline: the arm from which differences are taken, seed by seed.
      data: how records are made of the text below `--data_dir`.
      common: overrides of all arms; what stands below `task.objectives.X` is for arms that train X.
    """

    title: str
    seeds: list[int]
    arms: list[Arm]
    scores: Scores
    baseline: str
    data: list[DataStep] = dataclasses.field(default_factory=list)
    common: dict[str, Any] = dataclasses.field(default_factory=dict)

    def arm(self, name: str) -> Arm | None:
        """The arm of a name, or None."""
        return next((arm for arm in self.arms if arm.name == name), None)

    def names(self, name: str) -> bool:
        """Whether `$name` stands anywhere in it."""
        text = json.dumps(dataclasses.asdict(self))
        return name in string.Template(text).get_identifiers()


def study_files() -> dict[str, Path]:
    """Name -> file of the studies that come with the project."""
    return {path.stem: path for path in sorted(_STUDIES.glob("*.yaml"))}


def read_study(name: str) -> Study:
    """Reads a study's file and checks all that can be without data; `name` may be a project's own.

    Raises:
      UserError: for a missing file, an unknown key, a value of the wrong type, or names that
        contradict each other or lead nowhere.
    """
    from official_cmlm.configs.yaml_loading import check, read_yaml

    path = study_files().get(name, Path(name))
    if not path.is_file():
        raise UserError(f"{name}: no such study; there are {', '.join(study_files())}")
    values = read_yaml(path)
    check(Study, values, str(path))
    study = _built(Study, values, str(path), "")
    try:
        _check_names(study)
        _check_scores(study)
        return dataclasses.replace(study, arms=_in_order(study))
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def _built(kind: type, values: dict[str, Any], where: str, at: str) -> Any:
    """A dataclass of checked `values`, which are mappings and lists; refuses missing fields."""
    hints, built = typing.get_type_hints(kind), {}
    for field in dataclasses.fields(kind):
        required = field.default is field.default_factory is dataclasses.MISSING
        if required and field.name not in values:
            raise UserError(f"{where}: {at or 'the study'} lacks {field.name}")
    for name, value in values.items():
        place, hint = f"{at}.{name}".lstrip("."), hints[name]
        element = (typing.get_args(hint) or (None,))[0]
        if dataclasses.is_dataclass(hint):
            value = _built(hint, value, where, place)
        elif dataclasses.is_dataclass(element):
            value = [_built(element, v, where, f"{place}[{i}]") for i, v in enumerate(value)]
        elif typing.get_origin(hint) is dict and not isinstance(value, dict):
            raise UserError(f"{where}: {place} must be a mapping, got {value!r}")
        built[name] = value
    return kind(**built)


def _check_names(study: Study) -> None:
    for what, names in (
        ("seeds", study.seeds),
        ("arms", [arm.name for arm in study.arms]),
        ("steps of data", [step.name for step in study.data]),
        ("columns", [column.id for column in study.scores.columns]),
    ):
        if not names and what != "steps of data":
            raise UserError(f"there are no {what}; name at least one")
        if twice := [name for name in names if names.count(name) > 1]:
            raise UserError(f"two {what} are called {twice[0]}")
    for arm in study.arms:
        if not re.fullmatch(r"[A-Za-z0-9_-]+", arm.name):
            raise UserError(f"arm {arm.name!r}: a name has letters, digits, _ and - only")
        if arm.start_seed is not None and study.arm(arm.starts_from) is None:
            raise UserError(f"arm {arm.name}: start_seed is for arms that start from another arm")
        if arm.start_seed is not None and arm.start_seed not in study.seeds:
            raise UserError(f"arm {arm.name}: start_seed {arm.start_seed} is none of the seeds")
    if study.arm(study.baseline) is None:
        known = ", ".join(arm.name for arm in study.arms)
        raise UserError(f"baseline {study.baseline!r} is no arm; there are {known}")
    known = dict.fromkeys(GIVEN, "")
    for step in study.data:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", step.name) or step.name in GIVEN:
            raise UserError(f"step of data {step.name!r}: a name has letters, digits and _ only")
        if step.run not in OUTPUTS:
            raise UserError(f"data {step.name}: no binary {step.run!r}; there are {_list(OUTPUTS)}")
        for flag in OUTPUTS[step.run]:
            if flag in step.flags:
                raise UserError(f"data {step.name}: {flag} is set by the study; leave it out")
        _within(f"data {step.name}", expand, step.flags, known)
        known[step.name] = ""
    _within("common", expand, study.common, known)
    for arm in study.arms:
        _within(f"arm {arm.name}", expand, [arm.params_override, arm.starts_from], known)


def _within(where: str, function: typing.Callable, *args: Any) -> None:
    try:
        function(*args)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None


def _check_scores(study: Study) -> None:
    from official_cmlm.evaluation.report.driver import parse_options

    parse_options(study.scores.suites, study.scores.set)
    for column in study.scores.columns:
        for one in column.id.split("|"):
            suite, _, rest = one.partition("/")
            if suite == VALIDATION and not study.scores.validation:
                raise UserError(f"column {one}: needs validation: true in scores")
            if suite != VALIDATION and suite not in study.scores.suites:
                raise UserError(f"column {one}: {suite!r} is none of the suites of scores")
            if suite != VALIDATION and "/" not in rest:
                raise UserError(f"column {one}: must be suite/task/metric, or validation/metric")
    for arm in study.arms:
        for row in arm.paper:
            _within(f"arm {arm.name}", paper_values, row)


def _in_order(study: Study) -> list[Arm]:
    """The arms, each after the one that it starts from.

    Raises:
      UserError: if a start is no arm and looks like none of the folders, or starts form a circle.
    """
    ordered: list[Arm] = []

    def add(arm: Arm, after: list[str]) -> None:
        if arm in ordered:
            return
        if arm.name in after:
            raise UserError(f"arms start from each other: {' → '.join([*after, arm.name])}")
        if start := study.arm(arm.starts_from):
            add(start, [*after, arm.name])
        elif arm.starts_from and not set("/$") & set(arm.starts_from):
            names = [other.name for other in study.arms]
            near = difflib.get_close_matches(arm.starts_from, names, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}"
            raise UserError(
                f"arm {arm.name}: starts from {arm.starts_from!r}, which is no arm; {hint} (an "
                "encoder directory is written with a slash)"
            )
        ordered.append(arm)

    for arm in study.arms:
        add(arm, [])
    return ordered


def paper_values(row: PaperRow) -> dict[str, float]:
    """`suite/task/metric` -> the printed figure of a paper's row, in our unit.

    Raises:
      UserError: if there is no such row.
    """
    tables = paper_tables()
    if row.paper not in {table.paper for table in tables}:
        raise UserError(f"no paper {row.paper!r}; there are {_list({t.paper for t in tables})}")
    named = [t for t in tables if t.paper == row.paper]
    if not (found := [t for t in named if t.table == row.table]):
        known = _list(t.table for t in named)
        raise UserError(f"{row.paper}: no table {row.table!r}; there are {known}")
    rows = dict(found[0].rows)
    if row.row not in rows:
        raise UserError(f"{row.paper}, {row.table}: no row {row.row!r}; there are {_list(rows)}")
    values: dict[str, float] = {}
    for _, variant in found[0].variants:
        for (_, ids), printed in zip(found[0].columns, rows[row.row]):
            for one in (ids or "").replace("*", variant).split("|"):
                if "/" in one and printed is not None:
                    values.setdefault(f"{found[0].suite}/{one}", printed * found[0].scale)
    return values


def _list(names: typing.Iterable[str]) -> str:
    return ", ".join(sorted(names))


def expand(value: Any, names: dict[str, str]) -> Any:
    """`value` with `$name` in its strings replaced, in mappings and lists too.

    Raises:
      UserError: for a name that is not known.
    """
    if isinstance(value, dict):
        return {key: expand(item, names) for key, item in value.items()}
    if isinstance(value, list):
        return [expand(item, names) for item in value]
    if not isinstance(value, str):
        return value
    try:
        return string.Template(value).substitute(names)
    except KeyError as error:
        raise UserError(
            f"{value}: ${error.args[0]} is not known here; known are "
            f"{', '.join(f'${name}' for name in names)}"
        ) from None
    except ValueError:
        raise UserError(f"{value}: a $ stands before a name; write $$ for the sign") from None
