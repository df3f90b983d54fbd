"""Reports of a run: the balance of languages as a table, and the last lines printed."""

import os
import resource
import time
from collections.abc import Mapping
from pathlib import Path

from official_cmlm import cli
from official_cmlm.common.errors import one_line
from official_cmlm.common.files import atomic_write_text
from official_cmlm.common.processor import peak_mib
from official_cmlm.records.manifest import Manifest

from ..counts import Counts, is_removal, unit

TABLE = "balance.md"
# CMLM §4.4 smooths the vocabulary with this exponent, and gives none for the training mixture.
_EXPONENT = 0.3
# Languages with the largest counts that are named beside a reason; `dataset.json` has all.
_MAX_LANGUAGES = 8
# Times of this process and of the ended processes that it started.
_OWN = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
# Counters of input that could not be read.
_UNREAD = ("exclude/unread_file", "read/unreadable_file", "read/unreadable_record")


def smooth_shares(counts: Mapping[str, int], exponent: float) -> dict[str, float]:
    """Returns n^S / Σ n^S of each language with sentences, as `language_exponent` S samples."""
    total = sum(counts.values())
    powers = {name: (n / total) ** exponent for name, n in counts.items() if n}
    scale = sum(powers.values())
    return {name: power / scale for name, power in powers.items()}


def format_balance(manifest: Manifest) -> str:
    """Returns a report in Markdown: a row a language, a row a reason for text left out or changed.

    Languages have their sentences or pairs, the largest first, their tokens, their share of all,
    and the share with which they are sampled by an exponent of 0.3.
    """
    counted = "pairs" if manifest.kind == "pairs" else "sentences"
    lines = [
        "# Balance of languages",
        "",
        f"{manifest.documents:,} {'rows' if counted == 'pairs' else 'documents'},"
        f" {manifest.sentences:,} sentences, {manifest.tokens:,} tokens.",
        f"Smoothed: with `language_exponent: {_EXPONENT:g}`.",
        "",
        f"| language | {counted} | tokens | share | smoothed |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    total, smoothed = sum(manifest.languages.values()), smooth_shares(manifest.languages, _EXPONENT)
    for language, count in _largest_first(manifest.languages):
        tokens = manifest.language_tokens.get(language, 0)
        shares = f"{100 * count / total:.2f} % | {100 * smoothed[language]:.2f} %"
        lines.append(f"| {language} | {count:,} | {tokens:,} | {shares} |")
    for title, losses in (("Left out", True), ("Changed or noted, and kept", False)):
        names = [name for name in sorted(manifest.counters) if is_removal(name) == losses]
        lines += ["", f"## {title}", "", *(_format_reasons(manifest, names) or ["Nothing."])]
    return "\n".join(lines) + "\n"


def _format_reasons(manifest: Manifest, names: list[str]) -> list[str]:
    """Returns the lines of a table of counters; no lines without counters."""
    if not names:
        return []
    lines = ["| reason | count | unit | languages |", "| --- | ---: | --- | --- |"]
    for name in names:
        by_language = _largest_first(manifest.counters_by_language.get(name, {}))
        shown = [f"{language} {count:,}" for language, count in by_language[:_MAX_LANGUAGES]]
        if others := by_language[_MAX_LANGUAGES:]:
            shown.append(f"{len(others)} others {sum(count for _, count in others):,}")
        count = manifest.counters[name]
        lines.append(f"| {name} | {count:,} | {unit(name)} | {', '.join(shown)} |")
    return lines


def _largest_first(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """Returns (name, count) of all that occurred, equal counts by name."""
    return sorted(
        ((name, count) for name, count in counts.items() if count),
        key=lambda item: (-item[1], item[0]),
    )


def write_report(manifest: Manifest, folder: str | os.PathLike) -> None:
    """Writes `balance.md`."""
    atomic_write_text(Path(folder) / TABLE, format_balance(manifest))


def exit_status(counters: Mapping[str, int]) -> int:
    """Returns the exit status of a finished binary; 3 if there was input it could not read."""
    return cli.EXIT_SKIPPED if any(counters.get(name) for name in _UNREAD) else 0


def finish(summary: str, counts: Counts, files: int) -> int:
    """Prints warnings and a summary, with how many of `files` were skipped; see `exit_status`."""
    for warning in counts.warnings():
        cli.warn(warning)
    print(f"{one_line(summary)}{counts.describe_skipped(files)}")
    return exit_status(counts.counters)


def _format_counters(counters: Mapping[str, int]) -> str:
    """Formats the counters of text left out, the largest counts first, and of text changed."""
    parts: dict[bool, list[str]] = {True: [], False: []}
    for name, count in _largest_first(counters):
        parts[is_removal(name)].append(f"{name} {count} ({unit(name)})")
    line = f"left out: {', '.join(parts[True]) or 'nothing'}"
    return f"{line}; changed or noted: {', '.join(parts[False])}" if parts[False] else line


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
        """Prints warnings, what was written from `files` files, and the counters.

        Of documents it prints speed and memory too. Returns the exit status. `resumed`: an earlier
        run did a part, so no speed can be shown.
        """
        seconds, documents = max(time.monotonic() - self._started, 1e-9), manifest.documents
        if manifest.kind == "pairs":
            negatives = f" ({manifest.negatives} with a hard negative)" * bool(manifest.negatives)
            content, effort = f"{documents} rows, {manifest.records} pairs{negatives}", ""
        else:
            content = f"{documents} documents, {manifest.sentences} sentences"
            children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
            speed = (
                f" {documents / seconds:.0f} documents/s, {manifest.tokens / seconds:.0f} tokens/s,"
            )
            effort = (
                f" ({_cpu_seconds() - self._cpu:.1f} CPU-s),{'' if resumed else speed}"
                f" peak memory {max(peak_mib(), children / 1024):.0f} MiB"
            )
        summary = (
            f"{output}: {content}, {manifest.tokens} tokens in {len(manifest.shards)} shard(s);"
            f" {seconds:.1f} s{effort}"
        )
        if exit_status(manifest.counters) and not counts.describe_skipped(files):
            # A stopped run had done all but the rename, and its counts are gone.
            summary += ", some of the input skipped: see the counters in dataset.json"
        finish(summary, counts, files)
        print(one_line(_format_counters(manifest.counters)))
        return exit_status(manifest.counters)


def _cpu_seconds() -> float:
    return sum(sum(resource.getrusage(who)[:2]) for who in _OWN)
