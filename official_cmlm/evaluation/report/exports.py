"""The compared scores for other programs: CSV with all digits, and LaTeX."""

import csv
import io
import re

from official_cmlm.evaluation.report import tables
from official_cmlm.evaluation.report.main_scores import Results, scores, shown, suite_names
from official_cmlm.evaluation.report.tables import Best, Table

_LATEX = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
    **{"ρ": r"$\rho$", "×": r"$\times$", "±": r"$\pm$", "Δ": r"$\Delta$", "–": "--"},
}


def csv_table(*parts: Results) -> str:
    """Returns CSV: a row for each score in the suites of the first encoder, with all encoders.

    Columns of an encoder: value, deviation over seeds, ends of the 95 % interval; empty if unknown.
    """
    names = tables.encoder_names(*parts)
    text = io.StringIO(newline="")
    rows = csv.writer(text, lineterminator="\n")
    heads = [f"{name}{end}" for name in names for end in ("", " deviation", " low", " high")]
    rows.writerow(["suite", "task", "metric", "count", *heads])
    for suite in suite_names(*parts):
        found = [scores(part, suite) for part in shown(suite, parts)]
        for key in dict.fromkeys(key for part in found for key in part):
            each = [part.get(key, {}) for part in found]
            one = next(filter(None, each))
            row = [suite, one["task"], one["metric"], one["count"]]
            for score in each:
                row += [score.get("value"), score.get("deviation")]
                row += score.get("interval") or [None, None]
            rows.writerow(row)
    return text.getvalue()


def latex(*parts: Results) -> str:
    """Returns LaTeX tables (package booktabs): the summary, then papers' tables with own rows."""
    summary = tables.summary(*parts)
    found = [_tabular("Summary", summary)] if summary else []
    for suite in suite_names(*parts):
        for one in tables.comparisons(suite, *shown(suite, parts)):
            if not one.ablation:
                found.append(_tabular(one.title, one.without_unscored()))
    return "\n".join(found)


def _tabular(title: str, table: Table) -> str:
    cells = [
        [rf"\textbf{{{_text(cell)}}}" if isinstance(cell, Best) else _text(cell) for cell in row]
        for row in table.rows
    ]
    lines = [" & ".join(row) + r" \\" for row in (list(map(_text, table.header)), *cells)]
    # A line separates own rows from the paper's.
    lines.insert(1 + table.own, r"\midrule") if table.own else None
    lines.insert(1, r"\midrule")
    kinds = "l" * table.left + "r" * (len(table.header) - table.left)
    start = [f"% {' '.join(title.split())}", rf"\begin{{tabular}}{{{kinds}}}", r"\toprule"]
    return "\n".join([*start, *lines, r"\bottomrule", r"\end{tabular}", ""])


def _text(cell: str) -> str:
    return re.sub(".", lambda sign: _LATEX.get(sign[0], sign[0]), " ".join(cell.split()))
