"""Reports of a run: the balance of languages as table and figure, and the last lines printed."""

import html
import io
import os
import resource
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from official_cmlm import cli
from official_cmlm.common.errors import one_line
from official_cmlm.common.extras import check_extra
from official_cmlm.common.files import atomic_write, atomic_write_text
from official_cmlm.common.process_memory import peak_mib
from official_cmlm.records.manifest import Manifest

from ..counts import Counts, is_loss, unit

TABLE, FIGURE = "balance.md", "balance.svg"
# CMLM §4.4 smooths the vocabulary with this exponent, and gives none for the training mixture.
DEFAULT_EXPONENT = 0.3
# Largest number of bars in the figure; the table has all languages.
_MAX_BARS = 40
# Languages with the largest counts that are named beside a reason; `dataset.json` has all.
_MAX_LANGUAGES = 8
# Characters of a name that are shown; no language tag is longer.
_MOST_CHARACTERS = 64
_COLORS = ("#0072b2", "#d55e00")  # Okabe and Ito's, told apart by colour-blind readers


class Share(NamedTuple):
    """A language's part of the records.

    `language` has both codes of pairs, as in `en-de`; `tokens` are None if the manifest does not
    say; shares are of all sentences or pairs, `smoothed` as languages are sampled by the exponent.
    """

    language: str
    sentences: int
    tokens: int | None
    share: float
    smoothed: float


def smoothed_shares(counts: Mapping[str, int], exponent: float) -> dict[str, float]:
    """Returns n^S / Σ n^S of each language with sentences, as `language_exponent` S samples."""
    total = sum(counts.values())
    powers = {name: (n / total) ** exponent for name, n in counts.items() if n}
    scale = sum(powers.values())
    return {name: power / scale for name, power in powers.items()}


def shares(manifest: Manifest, exponent: float = DEFAULT_EXPONENT) -> list[Share]:
    """Returns the languages of records, the largest first."""
    counts = manifest.languages
    total = sum(counts.values())
    smoothed = smoothed_shares(counts, exponent)
    rows = [
        Share(name, n, manifest.language_tokens.get(name), n / max(1, total), smoothed[name])
        for name, n in counts.items()
        if n
    ]
    return sorted(rows, key=lambda row: (-row.sentences, row.language))


def shown(name: str) -> str:
    """Returns a name of a manifest, which may come from anyone, cut, without control characters."""
    name = one_line(name)
    return name if len(name) <= _MOST_CHARACTERS else f"{name[: _MOST_CHARACTERS - 1]}…"


def cell(name: str) -> str:
    """Returns a name as a cell of a Markdown table: neither markup nor HTML."""
    name = html.escape(shown(name), quote=False)
    for sign in "\\`*[]|":
        name = name.replace(sign, "\\" + sign)
    return name


def table(manifest: Manifest, exponent: float = DEFAULT_EXPONENT) -> str:
    """Formats a report in Markdown: a row a language, a row a reason for losses and for changes."""
    counted = "pairs" if manifest.kind == "pairs" else "sentences"
    lines = [
        "# Balance of languages",
        "",
        f"{manifest.documents:,} {'rows' if counted == 'pairs' else 'documents'},"
        f" {manifest.sentences:,} sentences, {manifest.tokens:,} tokens.",
        f"Smoothed: with `language_exponent: {exponent:g}`.",
        "",
        f"| language | {counted} | tokens | share | smoothed |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {cell(row.language)} | {row.sentences:,}"
        f" | {'' if row.tokens is None else f'{row.tokens:,}'}"
        f" | {100 * row.share:.2f} % | {100 * row.smoothed:.2f} % |"
        for row in shares(manifest, exponent)
    ]
    for title, losses in (("Left out", True), ("Changed or noted, and kept", False)):
        names = [name for name in sorted(manifest.counters) if is_loss(name) == losses]
        lines += ["", f"## {title}", "", *(_reasons(manifest, names) or ["Nothing."])]
    return "\n".join(lines) + "\n"


def _reasons(manifest: Manifest, names: list[str]) -> list[str]:
    """Returns the lines of a table of counters; no lines without counters."""
    if not names:
        return []
    lines = ["| reason | count | unit | languages |", "| --- | ---: | --- | --- |"]
    for name in names:
        languages = _most(manifest.counters_by_language.get(name, {}))
        count = manifest.counters[name]
        lines.append(f"| {cell(name)} | {count:,} | {unit(name)} | {languages} |")
    return lines


def _most(languages: Mapping[str, int]) -> str:
    """Returns the languages with the largest counts, and the number of others."""
    ordered = sorted(languages.items(), key=lambda item: (-item[1], item[0]))
    named = [f"{cell(language)} {count:,}" for language, count in ordered[:_MAX_LANGUAGES]]
    if others := ordered[_MAX_LANGUAGES:]:
        named.append(f"{len(others)} others {sum(count for _, count in others):,}")
    return ", ".join(named)


def figure(manifest: Manifest, exponent: float = DEFAULT_EXPONENT) -> bytes:
    """Draws the shares before and after smoothing as SVG; equal records give equal bytes."""
    check_extra("data", "matplotlib")
    import matplotlib
    from matplotlib.figure import Figure

    rows = shares(manifest, exponent)[:_MAX_BARS]
    style = {"font.size": 9.0, "svg.fonttype": "none", "svg.hashsalt": "balance"}
    style |= {"axes.spines.top": False, "axes.spines.right": False, "text.parse_math": False}
    with matplotlib.rc_context(style):
        drawing = Figure(figsize=(5.6, 1.0 + 0.34 * len(rows)), layout="constrained")
        axes = drawing.add_subplot()
        sides = {"as the records are": [100 * row.share for row in rows]}
        sides[f"smoothed, S = {exponent:g}"] = [100 * row.smoothed for row in rows]
        for i, (name, values) in enumerate(sides.items()):
            places = [row + 0.4 * i - 0.2 for row in range(len(rows))]
            bars = axes.barh(places, values, 0.37, color=_COLORS[i], label=name)
            axes.bar_label(bars, [f"{value:.1f}" for value in values], padding=2, fontsize=7.5)
        axes.set_yticks(range(len(rows)), [shown(row.language) for row in rows])
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.margins(x=0.1)
        axes.set_xlabel("share of the pairs, %" if manifest.kind == "pairs" else "sentences, %")
        drawing.legend(loc="outside upper left", ncols=2, frameon=False, fontsize=8)
        output = io.BytesIO()
        drawing.savefig(output, format="svg", metadata={"Date": None})
    return output.getvalue()


def write_report(
    manifest: Manifest, folder: str | os.PathLike, exponent: float = DEFAULT_EXPONENT
) -> None:
    """Writes `balance.md` and `balance.svg`, which show this smoothing."""
    atomic_write_text(Path(folder) / TABLE, table(manifest, exponent))
    with atomic_write(Path(folder) / FIGURE) as file:
        file.write(figure(manifest, exponent))


# Times of this process and of the ended processes that it started.
_OWN = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
# Counters of input that could not be read.
_UNREAD = ("exclude/unread_file", "read/unreadable_file", "read/unreadable_record")


def exit_status(counters: Mapping[str, int]) -> int:
    """Returns the exit status of a finished binary; 3 if there was input it could not read."""
    return cli.EXIT_SKIPPED if any(counters.get(name) for name in _UNREAD) else 0


def finish(summary: str, counts: Counts, files: int) -> int:
    """Prints warnings and a summary, with how many of `files` were skipped; see `exit_status`."""
    for warning in counts.warnings():
        cli.warn(warning)
    print(f"{one_line(summary)}{counts.skipped(files)}")
    return exit_status(counts.counters)


def left_out(counters: Mapping[str, int]) -> str:
    """Returns a line of the losses, the largest counts first, and of the changes."""
    ordered = sorted(counters.items(), key=lambda item: (-item[1], item[0]))
    shown = {True: [], False: []}
    for name, count in ordered:
        if count:
            shown[is_loss(name)].append(f"{name} {count} ({unit(name)})")
    line = f"left out: {', '.join(shown[True]) or 'nothing'}"
    return f"{line}; changed or noted: {', '.join(shown[False])}" if shown[False] else line


class Summary:
    """The last lines of a binary that writes records; time is measured from its construction."""

    def __init__(self) -> None:
        self._started, self._cpu = time.monotonic(), _cpu_seconds()

    def show(
        self,
        output: str,
        manifest: Manifest,
        counts: Counts,
        files: int,
        resumed: bool = False,
    ) -> int:
        """Prints warnings, the documents written from `files` files, their speed and the losses.

        Returns the exit status. `resumed`: an earlier run did a part, so no speed can be shown.
        """
        seconds = self._seconds()
        children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        peak = max(peak_mib(), children / 1024)
        speed = (
            f" {manifest.documents / seconds:.0f} documents/s,"
            f" {manifest.tokens / seconds:.0f} tokens/s,"
        )
        kept = (
            f"{output}: {manifest.documents} documents, {manifest.sentences} sentences, "
            f"{manifest.tokens} tokens in {len(manifest.shards)} shard(s); {seconds:.1f} s "
            f"({_cpu_seconds() - self._cpu:.1f} CPU-s),{'' if resumed else speed}"
            f" peak memory {peak:.0f} MiB"
        )
        if exit_status(manifest.counters) and not counts.skipped(files):
            # A stopped run had done all but the rename, and its counts are gone.
            kept += ", some of the input skipped: see the counters in dataset.json"
        finish(kept, counts, files)
        print(one_line(left_out(manifest.counters)))
        return exit_status(manifest.counters)

    def show_pairs(self, output: str, manifest: Manifest, counts: Counts, files: int) -> int:
        """Does the same for pairs, without speed and memory."""
        negatives = f" ({manifest.negatives} with a hard negative)" if manifest.negatives else ""
        kept = (
            f"{output}: {manifest.documents} rows, {manifest.records} pairs{negatives}, "
            f"{manifest.tokens} tokens in {len(manifest.shards)} shard(s); {self._seconds():.1f} s"
        )
        status = finish(kept, counts, files)
        print(one_line(left_out(manifest.counters)))
        return status

    def _seconds(self) -> float:
        return max(time.monotonic() - self._started, 1e-9)


def _cpu_seconds() -> float:
    return sum(sum(resource.getrusage(who)[:2]) for who in _OWN)
