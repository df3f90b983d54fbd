"""The counts of a phase as a file, and their sum over all elements."""

import dataclasses
import json
from collections import Counter
from pathlib import Path
from typing import Any

from official_cmlm.files import atomic_write_text
from official_cmlm.records.manifest import Shard

from ..output.dropped import DropCounter, Samples
from ..output.statistics import Statistics
from ..readers import ReadReport


@dataclasses.dataclass
class Result:
    """Counts of one element, or of several.

    Attributes:
      statistics: of the records; its counters hold what the stages left out too, with examples.
      report: of what was read, with examples of what was not.
      shards: files of records, in order.
    """

    statistics: Statistics
    report: ReadReport
    shards: list[Shard] = dataclasses.field(default_factory=list)

    @classmethod
    def empty(cls, sample_dropped: int) -> "Result":
        """Nothing counted yet; up to `sample_dropped` examples of each reason will be kept."""
        counters = DropCounter(samples=Samples(sample_dropped))
        return cls(Statistics(counters=counters), ReadReport(samples=Samples(sample_dropped)))

    @property
    def samples(self) -> Samples:
        """Examples of all that was dropped."""
        found = Samples(self.report.samples.limit)
        for part in (self.statistics.counters.samples, self.report.samples):
            found.merge(part.kept)
        return found

    def merge(self, other: "Result") -> None:
        """Adds another element, the next one in order."""
        self.statistics.merge(other.statistics)
        self.report.merge(other.report)
        self.shards += other.shards

    def save(self, path: Path) -> None:
        """Writes the file, after the shards that it names."""
        counters = self.statistics.counters
        dropped = {"languages": counters.languages, "samples": counters.samples}
        atomic_write_text(path, json.dumps(_fields(self) | {"dropped": dropped}, default=_fields))

    @classmethod
    def load(cls, path: Path) -> "Result":
        """Reads what `save` wrote."""
        values = json.loads(path.read_bytes())
        statistics, report = values["statistics"], values["report"]
        lengths = {int(length): count for length, count in statistics.pop("lengths").items()}
        counted = {
            name: Counter(value) if isinstance(value, dict) else value
            for name, value in statistics.items()
        }
        dropped = values["dropped"]
        samples = Samples(**dropped["samples"])
        counted["counters"] = DropCounter(counted["counters"], dropped["languages"], samples)
        report["records_dropped"] = Counter(report["records_dropped"])
        report["records_failed"] = {k: tuple(v) for k, v in report["records_failed"].items()}
        report["samples"] = Samples(**report["samples"])
        return cls(
            Statistics(**counted, lengths=Counter(lengths)),
            ReadReport(**report),
            [Shard(**shard) for shard in values["shards"]],
        )


def _fields(value: Any) -> dict[str, Any]:
    """What JSON makes of a dataclass; `dataclasses.asdict` cannot copy counters."""
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
