"""The findings of all published studies, as one table in README.md and in docs/results.md.

    python -m experiments.study --findings

reads `benchmarks/results/studies/*/results.json` and writes both tables anew. Each row is a
comparison with all of its outcomes in all studies that make it: whether a gain has the paper's sign
follows from the gain's interval and the paper's own figures. README has the main comparisons alone.
"""

import re
from pathlib import Path

from official_cmlm.common.errors import UserError
from official_cmlm.common.files import atomic_write_text, read_text
from official_cmlm.evaluation.report.tables import MISSING, escape

from .definition import Study, read_study, study_files
from .report import NO, NO_FIGURE, UNDECIDED, YES, Outcome, format_table, list_outcomes
from .results import RESULTS_NAME, read_results

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "studies"
# Page -> whether it has the main comparisons alone.
PAGES = {"README.md": True, "docs/results.md": False}
_HEADINGS = {
    YES: "as in the paper",
    NO: "not as in the paper",
    UNDECIDED: "undecided",
    NO_FIGURE: NO_FIGURE,
}
_BEGIN, _END = "<!-- made by: python -m experiments.study --findings -->", "<!-- end -->"


def tabulate_findings(only_main: bool) -> str:
    """Returns the table; with the main comparisons alone if that is wanted."""
    # Title -> answer -> its outcomes in each study, as text.
    rows: dict[str, dict[str, list[str]]] = {}
    for name, study in _read_published_studies():
        results = read_results(study, RESULTS / name)
        by_title: dict[str, list[Outcome]] = {}
        for outcome in list_outcomes(study, results):
            if outcome.comparison.is_main or not only_main:
                by_title.setdefault(outcome.comparison.title, []).append(outcome)
        for title, outcomes in by_title.items():
            cells = rows.setdefault(title, {answer: [] for answer in _HEADINGS})
            for answer in _HEADINGS:
                own = [_describe(each) for each in outcomes if each.has_paper_sign == answer]
                if own:
                    prefix = f"{escape(study.encoder)}: " if study.encoder else ""
                    cells[answer].append(prefix + "; ".join(own))
    lines = [
        [escape(title), *(". ".join(cells[answer]) or MISSING for answer in _HEADINGS)]
        for title, cells in rows.items()
    ]
    return format_table(["comparison", *_HEADINGS.values()], lines)


def _read_published_studies() -> list[tuple[str, Study]]:
    """Returns name and content of each study that has results, by its paper; without one, last."""
    names = [name for name in study_files() if (RESULTS / name / RESULTS_NAME).is_file()]
    studies = [(name, read_study(name)) for name in names]
    papers = {
        name: [d.paper for c in study.comparisons for d in c.paper] for name, study in studies
    }
    return sorted(studies, key=lambda one: (not papers[one[0]], papers[one[0]][:1]))


def _describe(outcome: Outcome) -> str:
    """Returns, for example, `STS-B −3.3 (−5.6 to −1.0), paper +30.2`."""
    name = escape(outcome.column.name or outcome.column.label)
    paper = f", paper {outcome.describe_printed()}" if outcome.printed else ""
    return f"{name} {outcome.describe_gain()}{paper}"


def insert_findings(page: str) -> str:
    """Returns the text of a page of PAGES with its table made anew.

    Raises:
      UserError: if the page has no place for the table.
    """
    text = read_text(ROOT / page)
    pattern = re.compile(f"({re.escape(_BEGIN)}\n+).*?(\n+{re.escape(_END)})", re.DOTALL)
    table = tabulate_findings(PAGES[page])
    text, count = pattern.subn(lambda match: match[1] + table + match[2], text)
    if count != 1:
        raise UserError(f"{page}: needs the lines {_BEGIN} and {_END} once, with a table between")
    return text


def write_findings() -> str:
    """Writes the tables of all PAGES anew; returns a line that says so."""
    for page in PAGES:
        atomic_write_text(ROOT / page, insert_findings(page))
    return f"findings: {', '.join(PAGES)}"
