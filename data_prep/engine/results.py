"""What a phase has counted, as a file, and the sum over all elements."""

import dataclasses
import json
from collections import Counter
from pathlib import Path
from typing import Any

from data_prep.engine.atomic import written
from data_prep.readers import ReadReport
from data_prep.stages import Samples
from data_prep.statistics import Statistics
from official_cmlm.records.manifest import Shard


@dataclasses.dataclass
class Result:
    """Counts of one element, or of several.

    Attributes:
      statistics: of the records; its counters hold what the stages left out too.
      report: of what was read.
      samples: of what was dropped.
      shards: files of records, in order.
    """

    statistics: Statistics
    report: ReadReport
    samples: Samples
    shards: list[Shard] = dataclasses.field(default_factory=list)

    @classmethod
    def empty(cls, sample_dropped: int) -> "Result":
        """Nothing counted yet."""
        return cls(Statistics(), ReadReport(), Samples(sample_dropped))

    def merge(self, other: "Result") -> None:
        """Adds another element, the next one in order."""
        self.statistics.merge(other.statistics)
        self.report.merge(other.report)
        self.samples.merge(other.samples)
        self.shards += other.shards

    def save(self, path: Path) -> None:
        """Writes the file; once it is there, so is all that it tells of."""
        with written(path) as file:
            file.write(json.dumps(self, default=_fields).encode())

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
        report["records_dropped"] = Counter(report["records_dropped"])
        report["records_failed"] = {k: tuple(v) for k, v in report["records_failed"].items()}
        return cls(
            Statistics(**counted, lengths=Counter(lengths)),
            ReadReport(**report),
            Samples(**values["samples"]),
            [Shard(**shard) for shard in values["shards"]],
        )


def _fields(value: Any) -> dict[str, Any]:
    """What JSON makes of a dataclass; `dataclasses.asdict` cannot copy counters."""
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
