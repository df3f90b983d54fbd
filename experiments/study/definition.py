"""A study's YAML file: arms that are trained with several seeds and compared; see docs/studies.md.

`$data` stands for the folder of `--data_dir`, `$start` for the encoder directory of `--start`, and
`$name` for the folder that the step `name` of `data` made.
"""

import dataclasses
import json
import re
import string
from pathlib import Path
from typing import Annotated, Any

from official_cmlm.common.errors import UserError, within
from official_cmlm.common.validation import SEED, Matching, OneOf, read_dataclass
from official_cmlm.evaluation.report.papers import PaperDifference

from .. import chains

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
# Prefix of metrics of the training's own validation, where other scores have their suite's name.
VALIDATION = "validation"

# "training" and "scoring" -> the settings that an arm's weights, or its scores, depend on.
Settings = dict[str, dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class DataStep:
    """One run of a binary of `data_prep`; later steps and arms name its output `$name`.

    Attributes:
      name: letters, digits and underscores.
      run: the binary, a key of OUTPUTS.
      flags: its flags without those of OUTPUTS; a list is joined with commas. `$name` is a folder:
        `$split/train.jsonl` is the training part of a step `split` that runs `hold_out`.
    """

    name: Annotated[
        str,
        Matching(r"(?!(data|start)$)[A-Za-z_]\w*", "letters, digits and _, and not data or start"),
    ]
    run: Annotated[str, OneOf(tuple(OUTPUTS))]
    flags: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Arm:
    """One training of the comparison, with every seed.

    Attributes:
      name: letters, digits, `_` and `-`.
      experiment: an experiment's name.
      params_override: what the arm changes of the experiment; comes after the study's `common`.
      starts_from: name of an arm above, whose encoder of the same seed it starts from, or an
        encoder directory, as `$start`. Default: random weights.
      train: false scores the encoder as it starts, for example with another `pooling`: a training
        of no steps. Default true.
      sentence_vector: the vector that is scored, as `--sentence_vector` of `experiments.evaluate`
        has it, e.g. `projected_mean`. Default: the encoder's own.
      label: for table and figure. Default: the name.
    """

    name: Annotated[str, Matching("[A-Za-z0-9_-]+", "letters, digits, _ and -")]
    experiment: str
    params_override: dict[str, Any] = dataclasses.field(default_factory=dict)
    starts_from: str = ""
    train: bool = True
    sentence_vector: str = ""
    label: str = ""

    @property
    def title(self) -> str:
        """The arm's name in table and figure."""
        return self.label or self.name

    @property
    def stage(self) -> chains.Stage:
        """The arm as a stage of a chain, for the functions of `chains`."""
        return chains.Stage(self.name, self.experiment, params_override=self.params_override)


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Two arms, of which a paper may say which is better.

    Attributes:
      arm, minus: names of the arms; the gain is the first's score minus the second's, seed by seed.
      title: for tables, e.g. `CMLM against MLM`; the same in all studies that make it.
      is_main: whether it is a whole method against its start, or against the method that its paper
        competes with, and not a part of a method: the project's first page has its outcomes.
      paper: the rows of the papers' tables that stand for the two arms; the first pair that has a
        column counts.
    """

    arm: str
    minus: str
    title: str
    is_main: bool = False
    paper: list[PaperDifference] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Column:
    """A score to show.

    Attributes:
      id: `suite/task/metric` as in `results.json`, or `validation/` and a metric of the training's
        validation, e.g. `validation/mlm/masked_token_accuracy`. Several with `|` between them: the
        first that an arm has.
      label: quantity and unit, of the score times `scale`.
      name: the quantity in few words, for tables of several columns. Default: the label.
      paper: ids of the papers' scores that it is compared with, if they are not `id`; several with
        ` | ` between them: the first that a table has. Ids joined by ` + ` stand for their mean:
        the score `id` itself, as the mean of the figures that the paper prints for its tasks.
      scale: scores are multiplied with it. Default 1.
      decimals: digits after the point. Default 1.
    """

    id: str
    label: str
    name: str = ""
    paper: str = ""
    scale: float = 1.0
    decimals: int = 1

    def value(self, scores: dict[str, float]) -> float | None:
        """Returns the score in the column's unit, None where there is none."""
        values = [scores[i] for i in self.id.split("|") if i in scores]
        return values[0] * self.scale if values else None

    @property
    def paper_ids(self) -> list[str]:
        """The papers' scores that it is compared with, the first that a table has before others."""
        return re.split(r"\s*\|\s*", self.paper or self.id)

    def text(self, value: float | None, sign: str = "") -> str:
        """Returns a value as the tables show it; with `sign` "+" as a difference."""
        return "–" if value is None else f"{value:{sign}.{self.decimals}f}".replace("-", "−")


@dataclasses.dataclass(frozen=True)
class Scores:
    """The protocols by which arms are scored.

    Attributes:
      columns: what table and figure show; everything else stays in `results.json`.
      suites: suites of `experiments.evaluate`.
      set: the suites' options, as for its `--set`.
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
      arms: the trainings, each below the one that it starts from.
      scores: how they are scored.
      baseline: the arm from which the differences of all others are taken, seed by seed.
      comparisons: the pairs of arms that answer the study's questions.
      encoder: what its encoders or trainings have unlike those of other studies, in a few words,
        for the table of all studies.
      precision: of all trainings, whatever their experiments say, so that every machine computes
        the same and no two arms differ in it.
      data: how records are made of the text below `--data_dir`.
      common: overrides of all arms; values below `task.objectives.X` are for arms that train X.
    """

    title: str
    seeds: Annotated[list[int], SEED]
    arms: list[Arm]
    scores: Scores
    baseline: str
    comparisons: list[Comparison] = dataclasses.field(default_factory=list)
    encoder: str = ""
    precision: Annotated[str, OneOf(("float32", "bfloat16", "float16"))] = "float32"
    data: list[DataStep] = dataclasses.field(default_factory=list)
    common: dict[str, Any] = dataclasses.field(default_factory=dict)

    def arm(self, name: str) -> Arm | None:
        """Returns the arm of a name, or None."""
        return next((arm for arm in self.arms if arm.name == name), None)

    def settings(self, arm: Arm) -> Settings:
        """Returns all values of the file that an arm's weights and its scores depend on.

        The overrides are those of `common` that concern the arm, and its own, which win.
        """
        overrides = chains.merge(
            chains.select_overrides(arm.stage, self.common), arm.params_override
        )
        training = {name: getattr(arm, name) for name in ("experiment", "starts_from", "train")}
        scoring = {name: getattr(self.scores, name) for name in ("suites", "set", "validation")}
        return {
            "training": {**training, "precision": self.precision, "params_override": overrides},
            "scoring": {**scoring, "sentence_vector": arm.sentence_vector},
        }


def study_files() -> dict[str, Path]:
    """Returns name -> file of the studies that come with the project."""
    return {path.stem: path for path in sorted(_STUDIES.glob("*.yaml"))}


def read_study(name: str) -> Study:
    """Reads a study's file, or one of the project's by name, and checks what needs no data.

    Raises:
      UserError: for a missing file, an unknown key, a value of the wrong type, or names that
        contradict each other or lead nowhere.
    """
    from official_cmlm.configs.yaml_loading import read_yaml

    path = study_files().get(name, Path(name))
    if not path.is_file():
        raise UserError(f"{name}: no such study; there are {', '.join(study_files())}")
    study = read_dataclass(Study, read_yaml(path), str(path))
    with within(str(path)):
        _check_names(study)
        _check_scores(study.scores)
    return study


def _check_names(study: Study) -> None:
    arms = [arm.name for arm in study.arms]
    lists = {
        "seeds": study.seeds,
        "arms": arms,
        "columns": [column.id for column in study.scores.columns],
        "steps of data": [step.name for step in study.data],
    }
    for what, names in lists.items():
        if not names and what != "steps of data":
            raise UserError(f"there are no {what}; name at least one")
        if repeated := [name for name in names if names.count(name) > 1]:
            raise UserError(f"two {what} are called {repeated[0]}")
    places = {"data": "", "start": ""}
    for step in study.data:
        with within(f"data {step.name}"):
            for flag in step.flags:
                # A file of flags could name other outputs than the study's.
                if flag in {*OUTPUTS[step.run], "flagfile"} or not str(flag).isidentifier():
                    raise UserError(f"{flag!r:.80} is not a flag that a study sets; leave it out")
            expand(step.flags, places)
        places[step.name] = ""
    with within("common"):
        expand(study.common, places)
    for number, arm in enumerate(study.arms):
        with within(f"arm {arm.name}"):
            expand([arm.params_override, arm.starts_from], places)
            if arm.starts_from and not set("/$") & set(arm.starts_from):
                where = " above it (an encoder directory is written with a slash)"
                _check_name("starts_from", arm.starts_from, arms[:number], where)
    _check_name("baseline", study.baseline, arms)
    for comparison in study.comparisons:
        with within(f"comparison {comparison.title}"):
            _check_name("arm", comparison.arm, arms)
            _check_name("minus", comparison.minus, arms)
            for difference in comparison.paper:
                difference.compute(())


def _check_name(what: str, name: str, names: list[str], where: str = "") -> None:
    """Raises `UserError` unless `name` is one of `names`."""
    if name not in names:
        raise UserError(f"{what} {name!r} is not known{where}; there are {', '.join(names)}")


def _check_scores(scores: Scores) -> None:
    from official_cmlm.evaluation.report.driver import parse_options

    parse_options(scores.suites, scores.set)
    for score in [score for column in scores.columns for score in column.id.split("|")]:
        suite, _, rest = score.partition("/")
        if suite == VALIDATION and not scores.validation:
            raise UserError(f"column {score}: needs validation: true in scores")
        if suite != VALIDATION and suite not in scores.suites:
            raise UserError(f"column {score}: {suite!r} is none of the suites of scores")
        if suite != VALIDATION and "/" not in rest:
            raise UserError(f"column {score}: must be suite/task/metric, or validation/metric")


def identifiers(value: Any) -> list[str]:
    """Returns each `name` of which `$name` occurs in nested values."""
    return string.Template(json.dumps(value)).get_identifiers()


def expand(value: Any, names: dict[str, str]) -> Any:
    """Returns nested values with `$name` in their strings replaced.

    Raises:
      UserError: for an unknown name; or a value that is neither text nor number, as a date.
    """
    if isinstance(value, dict):
        return {key: expand(item, names) for key, item in value.items()}
    if isinstance(value, list):
        return [expand(item, names) for item in value]
    if value is None or isinstance(value, bool | int | float):
        return value
    if not isinstance(value, str):
        raise UserError(f"{value} is a {type(value).__name__}, not a text; put it in quotes")
    try:
        return string.Template(value).substitute(names)
    except KeyError as error:
        hint = f"known are {', '.join(f'${name}' for name in names)}"
        if error.args == ("start",):
            hint = "name the folder of an encoder with --start"
        raise UserError(f"{value!r}: ${error.args[0]} is not known here; {hint}") from None
    except ValueError:
        raise UserError(
            f"{value!r}: a $ stands before no name; write $$ for the sign itself"
        ) from None
