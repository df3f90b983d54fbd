"""Tables as text: the main scores, all scores, and the papers' tables with own rows."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from official_cmlm.evaluation.report import main_scores
from official_cmlm.evaluation.report.main_scores import Results, choose_shown, scores, suite_names
from official_cmlm.evaluation.report.papers import PaperTable, own_values, paper_tables
from official_cmlm.evaluation.suite import Metric
from official_cmlm.evaluation.suites import SUITES, get_results

MISSING = "–"
ROWS_FOOTNOTE = "Bold: the best of a row; none where the counts differ."


class Best(str):
    """A cell with the best of the values that are compared."""


@dataclasses.dataclass(frozen=True)
class Table:
    """A table as text.

    Attributes:
      header: headings.
      rows: cells.
      own: number of rows, from the first, of the evaluated encoders in a paper's table.
      texts: number of columns, from the last, that are text as the first is; others are numbers.
    """

    header: list[str]
    rows: list[list[str]]
    own: int = 0
    texts: int = 0

    @property
    def is_text(self) -> list[bool]:
        """Whether each column is text."""
        first_text = len(self.header) - self.texts
        return [i == 0 or i >= first_text for i in range(len(self.header))]


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A paper's table with rows of the evaluated encoders.

    Attributes:
      title: one line.
      table: the evaluated encoders' rows, then the paper's; `Best` cells are the best of a column.
      scored: for each column whether an evaluated encoder has a score; true for the first column,
        the models' names.
      footnote: the protocol, and the columns without a score of the evaluated encoders.
      ablation: see `PaperTable`.
    """

    title: str
    table: Table
    scored: list[bool]
    footnote: str
    ablation: bool

    def without_unscored(self) -> Table:
        """Returns the table without columns, and then rows, that have nothing to compare."""
        header, *rows = (
            [cell for cell, scored in zip(row, self.scored) if scored]
            for row in (self.table.header, *self.table.rows)
        )
        rows = [row for row in rows if set(row[1:]) != {MISSING}]
        return dataclasses.replace(self.table, header=header, rows=rows)


def encoder_names(*parts: Results) -> list[str]:
    """Returns the encoders' names; equal names get the fingerprint added, then a number."""
    encoders = [part["encoder"] for part in parts]
    names = [encoder["name"] for encoder in encoders]
    names = [
        f"{name} ({encoder['fingerprint'][:8]})" if names.count(name) > 1 else name
        for name, encoder in zip(names, encoders)
    ]
    numbers = [1 + names[:i].count(name) for i, name in enumerate(names)]
    return [f"{name}, {i}" if i > 1 else name for name, i in zip(names, numbers)]


def encoder_lines(*parts: Results) -> list[str]:
    """Returns a line of facts for each encoder; it has no dimension if nothing was encoded."""
    lines = []
    for name, part in zip(encoder_names(*parts), parts):
        encoder = part["encoder"]
        facts = [encoder["kind"]]
        facts += [f"{encoder['dimension']} dimensions"] if encoder["dimension"] else []
        facts += [f"fingerprint {encoder['fingerprint']}", f"from {encoder['path']}"]
        facts += [f"data from {part['data_dir']}", part["started"], duration(part["seconds"])]
        lines.append(f"{name}: {', '.join(facts)}")
    return lines


def summary(*parts: Results) -> Table | None:
    """Tabulates the scores that represent the first encoder's suites; None without any."""
    return _tabulate(parts, [(f"{suite}: {task}", *rest) for suite, task, *rest in _main(parts)])


def headline(*parts: Results) -> str:
    """Says in a sentence the score of each suite, or which encoder is better; empty without any.

    Scores of several encoders are counted if they are of equally many examples.
    """
    names, rows = encoder_names(*parts), list(_main(parts))
    if len(parts) == 1:
        last = {suite: f"{_cells(each, m)[0]} in {suite} ({t})" for suite, t, m, each in rows}
        return f"{names[0]} has {join_names(list(last.values()))}." if last else ""
    rows = [row for row in rows if all(row[3]) and _comparable(row[3])]
    best = [[isinstance(cell, Best) for cell in _cells(each, m)] for _, _, m, each in rows]
    ends = [_difference_ends(each, parts) for *_, each in rows]
    # An interval on one side of 0 is a difference that the choice of examples does not explain.
    clear = [bool(pair) and pair[0] * pair[1] > 0 for pair in ends]
    counts = []
    for i, name in enumerate(names):
        won = [is_clear for row, is_clear in zip(best, clear) if row[i]]
        surely = f" (clearly in {sum(won)})" if any(won) else ""
        counts += [f"{name} is best in {len(won)}{surely}"] if won else []
    what = " Clearly: the 95 % interval of the paired difference does not contain 0." * any(clear)
    return f"Of {len(rows)} scores {join_names(counts) or 'none differs'}.{what}" if rows else ""


def _main(
    parts: Sequence[Results],
) -> Iterator[tuple[str, str, Metric, list[dict[str, Any] | None]]]:
    """Yields suite, task, metric and each encoder's score of the scores that represent suites."""
    for suite in suite_names(*parts):
        if scores(parts[0], suite):
            for row in main_scores.summarize(suite, parts):
                yield suite, *row


def comparisons(suite: str, *parts: Results) -> list[Comparison]:
    """Returns the papers' tables of a suite, with own rows, if any encoder has a score in them."""
    encoders = []
    for name, part in zip(encoder_names(*parts), parts):
        values = {key: score["value"] for key, score in scores(part, suite).items()}
        # The name is followed by the settings of the trainings on which scores depend.
        configuration = part.get("suites", {}).get(suite, {}).get("configuration")
        encoders.append((f"{name} ({configuration})" if configuration else name, values))
    compared = [_compare(table, encoders) for table in paper_tables() if table.suite == suite]
    return [comparison for comparison in compared if comparison is not None]


def _compare(
    table: PaperTable, encoders: list[tuple[str, dict[str, float | None]]]
) -> Comparison | None:
    rows: list[tuple[str, list[float | None]]] = []
    for name, values in encoders:
        for label, ids in table.variants:
            row = own_values(table, values, ids)
            if any(value is not None for value in row):
                rows.append((f"{name}, {label}" if label else name, row))
    if not rows:
        return None
    own = len(rows)
    scored = [any(row[i] is not None for _, row in rows) for i in range(len(table.columns))]
    rows += [
        (model, [None if v is None else v * table.scale for v in values])
        for model, values in table.rows
    ]
    texts = [
        [model, *(MISSING if v is None else f"{v:.{table.decimals}f}" for v in row)]
        for model, row in rows
    ]
    for column, (_, score) in enumerate(table.columns, 1):
        metric = get_results(table.suite).metric((score or "").split("|")[0].rpartition("/")[2])
        for i in _best([row[column] for row in texts], metric):
            texts[i][column] = Best(texts[i][column])
    columns = list(zip(table.columns, scored))
    footnote = f"Protocol: {table.protocol}."
    for what, labels in (
        ("Not scored", [label for (label, column), there in columns if column and not there]),
        ("Computed by no suite", [label for (label, column), _ in columns if not column]),
    ):
        if labels:
            footnote += f" {what}: {', '.join(labels).removesuffix('.')}."
    return Comparison(
        title=f"{table.paper}, {table.table}: {table.caption}",
        table=Table(
            header=["Model", *(label for label, _ in table.columns)],
            rows=texts,
            own=own,
        ),
        scored=[True, *scored],
        footnote=footnote,
        ablation=table.ablation,
    )


def _cells(row_scores: Sequence[dict[str, Any] | None], metric: Metric) -> list[str]:
    """Formats scores of several encoders; none is `Best` where scores have different examples."""
    numbers = [_number(one["value"], metric.decimals) if one else MISSING for one in row_scores]
    best = _best(numbers, metric) if _comparable(row_scores) else []
    cells = [_with_deviation(score, metric.decimals) for score in row_scores]
    return [Best(cell) if i in best else cell for i, cell in enumerate(cells)]


def _best(texts: Sequence[str], metric: Metric) -> list[int]:
    """Returns the places of the best numbers, as printed; none where nothing differs."""
    values = {i: metric.better * float(text) for i, text in enumerate(texts) if text != MISSING}
    differ = len(set(values.values())) > 1
    return [i for i, value in values.items() if differ and value == max(values.values())]


def _comparable(row_scores: Sequence[dict[str, Any] | None]) -> bool:
    """Returns whether scores are of the same examples, as far as their numbers tell."""
    return len({(score["count"], score.get("counts")) for score in row_scores if score}) < 2


def all_scores(suite: str, *parts: Results) -> Table | None:
    """Returns all scores of a suite; None without any.

    For two encoders it also has the differences, where both scores are of equally many examples.
    """
    by_key = [scores(part, suite) for part in parts]
    rows = []
    for key in dict.fromkeys(key for part in by_key for key in part):
        each = [part.get(key) for part in by_key]
        task, name = next((score["task"], score["metric"]) for score in each if score)
        rows.append((task, get_results(suite).metric(name), each))
    return _tabulate(parts, rows)


def _tabulate(
    parts: Sequence[Results], rows: Iterable[tuple[str, Metric, Sequence[dict[str, Any] | None]]]
) -> Table | None:
    """Returns a table of each encoder's scores by name and metric; None without rows.

    For two encoders it has their differences, where both scores are of equally many examples.
    """
    names = encoder_names(*parts)
    header = ["Task", *(names if len(names) > 1 else ["Value"]), "Count", "Metric"]
    if len(parts) == 2:
        header.insert(3, "Difference")
    cells = []
    for name, metric, each in rows:
        row = [name, *_cells(each, metric)]
        if len(parts) == 2:
            row.append(MISSING)
            if all(each) and _comparable(each):
                difference = _number(each[0]["value"] - each[1]["value"], metric.decimals, "+")
                row[-1] = difference + _interval(_difference_ends(each, parts), metric.decimals)
        cells.append([*row, _counts(each), metric.text])
    return Table(header, cells, texts=1) if cells else None


def _difference_ends(each: Sequence[dict[str, Any] | None], parts: Sequence[Results]) -> Any:
    """Returns the interval of the first of two encoders' score minus the second's, if known."""
    if len(parts) == 2:
        return each[0].get("differences", {}).get(parts[1]["encoder"]["fingerprint"])
    return None


def markdown(*parts: Results) -> str:
    """Renders the whole evaluation as Markdown: own scores first, the papers' tables last.

    It has the suites of the first encoder and names the suites that only others have. Each of
    `parts` is the content of a `results.json`. Differences of two encoders are first minus second.
    """
    names = encoder_names(*parts)
    suites = suite_names(*parts)
    lines = [f"# Evaluation of {escape(join_names(names))}"]
    lines += ["", escape(text)] if (text := headline(*parts)) else []
    if table := summary(*parts):
        lines += ["", "## Summary", "", *_table_lines(table)]
        if len(parts) > 1:
            lines += ["", ROWS_FOOTNOTE]
    for title, kind in (("Failed", "failures"), ("No data", "missing")):
        entries = [(s, text) for s in suites for text in lines_of(kind, s, *choose_shown(s, parts))]
        if entries:
            lines += ["", f"**{title}:**", ""]
            lines += [f"- {escape(suite)}: {escape(text)}" for suite, text in entries]
    for suite in suites:
        lines += _suite_lines(suite, *choose_shown(suite, parts))
    lines += _paper_lines(suites, *parts)
    lines += ["", "## Encoders", "", *(f"- {escape(line)}" for line in encoder_lines(*parts))]
    if text := only_compared_line(*parts):
        lines += ["", escape(text)]
    return "\n".join(lines) + "\n"


def _suite_lines(suite: str, *parts: Results) -> list[str]:
    if not any(scores(part, suite) for part in parts) and not lines_of("notes", suite, *parts):
        return []
    lines = ["", f"## {escape(suite)}"]
    if suite in SUITES:
        lines += ["", escape(SUITES[suite])]
    if table := all_scores(suite, *parts):
        lines += ["", "### All scores", "", *_table_lines(table)]
    for title in ("Settings", "Notes"):
        if texts := lines_of(title.lower(), suite, *parts):
            lines += ["", f"### {title}", "", *(f"- {escape(text)}" for text in texts)]
    return lines


def _paper_lines(suites: Sequence[str], *parts: Results) -> list[str]:
    """Renders the papers' tables; of ablations, which are long, only the titles."""
    tables_of_papers = [
        comparison
        for suite in suites
        for comparison in comparisons(suite, *choose_shown(suite, parts))
    ]
    if not tables_of_papers:
        return []
    lines = [
        "",
        "## Papers' tables",
        "",
        "The first rows, in italics, are from this evaluation. Bold: the best of a column. Columns "
        "that were not scored are left out; report.html has them.",
    ]
    for comparison in tables_of_papers:
        if not comparison.ablation:
            lines += ["", f"### {escape(comparison.title)}", ""]
            lines += _table_lines(comparison.without_unscored())
            lines += ["", escape(comparison.footnote)]
    if ablations := [escape(c.title) for c in tables_of_papers if c.ablation]:
        lines += ["", "### Ablations", "", "These tables are in report.html:", ""]
        lines += [f"- {title}" for title in ablations]
    return lines


def only_compared_line(*parts: Results) -> str:
    """Returns a line with the suites that are left out since the first encoder has no score."""
    names = {name for part in parts[1:] for name in part["suites"] if scores(part, name)}
    left_out = main_scores.in_order({name for name in names if not scores(parts[0], name)})
    return f"Only in compared results: {', '.join(left_out)}." if left_out else ""


def lines_of(kind: str, suite: str, *parts: Results) -> list[str]:
    """Returns lines on a suite's runs; a line that not all encoders share begins with names.

    Kinds: `settings`, protocol, options, seeds and duration; `notes`; `failures`, one line for all
    tasks that failed in the same way; `missing`, one line for all tasks that lack data of the same
    source.
    """
    by_encoder = [_KINDS[kind](part.get("suites", {}).get(suite, {})) for part in parts]
    names = encoder_names(*parts)
    lines = {}
    for text in dict.fromkeys(text for texts in by_encoder for text in texts):
        having = [name for name, texts in zip(names, by_encoder) if text in texts]
        lines[text] = "" if len(having) == len(parts) else f"{', '.join(having)}: "
    shared = [text for text, start in lines.items() if not start]
    return shared + [f"{start}{text}" for text, start in lines.items() if start]


def missing_lines(missing: list[dict[str, str]]) -> list[str]:
    """Groups tasks without data, one line for all that lack data of the same source."""
    groups = _group_by_hint((one["task"] or one["what"], one["hint"]) for one in missing)
    return [f"{', '.join(group)}: {hint}" for hint, group in groups.items()]


def _group_failures(failures: list[str]) -> list[str]:
    """Groups failures; a hint that several failures share comes once, after the last of these."""
    groups = _group_by_hint(text.partition("; ")[::2] for text in failures)
    alone = groups.pop("", [])
    return [f"{'; '.join(group)}; {hint}" for hint, group in groups.items()] + alone


def _group_by_hint(lines: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Returns hint -> the lines that have it, from pairs of both."""
    groups: dict[str, list[str]] = {}
    for line, hint in lines:
        groups.setdefault(hint, []).append(line)
    return groups


def _settings(part: dict[str, Any]) -> list[str]:
    options = {key: _option(value) for key, value in part.get("options", {}).items()}
    chosen = "; ".join(f"{key}: {text}" for key, text in options.items() if text)
    seeds = ", ".join(map(str, part.get("seeds", [])))
    lines = [("Protocol", part.get("protocol", "")), ("Options", chosen), ("Seeds", seeds)]
    if "seconds" in part:
        lines.append(("Duration", duration(part["seconds"])))
    return [f"{label}: {text}" for label, text in lines if text]


def _option(value: Any) -> str:
    """Returns an option's value for readers; empty where nothing was chosen."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(_option, value)) if isinstance(value, list | tuple) else str(value)


_KINDS: dict[str, Callable[[dict[str, Any]], list[str]]] = {
    "settings": _settings,
    "notes": lambda part: part.get("notes", []),
    "failures": lambda part: _group_failures(part.get("failures", [])),
    "missing": lambda part: missing_lines(part.get("missing", [])),
}


def duration(seconds: float) -> str:
    """Formats a duration: `42 s`, `3 min 20 s` or `2 h 5 min`."""
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if minutes else f"{rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def join_names(names: Sequence[str]) -> str:
    """Joins names: `a`, `a and b` or `a, b and c`."""
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def escape(text: str) -> str:
    """Escapes text for Markdown and joins its lines."""
    text = " ".join(text.split())
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    for sign in "\\`*_|[]#~$":
        text = text.replace(sign, "\\" + sign)
    return text


def _table_lines(table: Table) -> list[str]:
    """Renders a pipe table; text is left-aligned, numbers are right-aligned."""
    rule = ["---" if is_text else "---:" for is_text in table.is_text]
    rows = [
        [_cell(text, is_own=i < table.own and not j) for j, text in enumerate(row)]
        for i, row in enumerate(table.rows)
    ]
    lines = (list(map(escape, table.header)), rule, *rows)
    return ["| " + " | ".join(cells) + " |" for cells in lines]


def _cell(text: str, is_own: bool) -> str:
    sign = "**" if isinstance(text, Best) else "*" if is_own else ""
    return f"{sign}{escape(text)}{sign}"


def _counts(row_scores: Sequence[dict[str, Any] | None]) -> str:
    return " / ".join(dict.fromkeys(str(score["count"]) for score in row_scores if score))


def _with_deviation(score: dict[str, Any] | None, decimals: int) -> str:
    if score is None:
        return MISSING
    text = _number(score["value"], decimals)
    deviation = score.get("deviation")
    text += "" if deviation is None else f" ± {_number(deviation, decimals)}"
    return text + _interval(score.get("interval"), decimals)


def _interval(ends: Sequence[float] | None, decimals: int) -> str:
    """Formats the ends of an interval: ` [1.20, 3.40]`; empty without an interval."""
    return f" [{', '.join(_number(end, decimals) for end in ends)}]" if ends else ""


def _number(value: float, decimals: int, sign: str = "-") -> str:
    """Formats a value with its decimals; `1.2e-07` where more than two would show little of it.

    Percentages keep their two decimals: a ten-thousandth of a per cent is of no interest.
    """
    small = decimals > 2 and 0 < abs(value) < 10 ** (1 - decimals)
    return f"{value:{sign}.1e}" if small else f"{value:{sign}.{decimals}f}"
