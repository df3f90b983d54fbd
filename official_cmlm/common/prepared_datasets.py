"""Data sets of TensorFlow Datasets that were prepared before; nothing is ever downloaded."""

import dataclasses
import functools
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from official_cmlm.common.errors import UserError, one_line
from official_cmlm.common.extras import check_extra

if TYPE_CHECKING:
    from tensorflow_datasets.core import DatasetBuilder

# Names with a namespace of tfds are not matched, as tfds would look for these on a server.
_NAME = re.compile(r"\w+(/[\w.+-]+)?(:\d+\.\d+\.\d+)?")


@dataclasses.dataclass(frozen=True)
class PreparedDataset:
    """A split of a data set. Errors name the flags of data preparation.

    Attributes:
      name: as tfds writes it, e.g. `wikipedia/20230601.en`, also with a version.
      data_dir: folder in which it was prepared; None: tfds's own.
      split: as tfds writes it, e.g. `train[:10%]`.
    """

    name: str
    data_dir: str | None
    split: str

    @functools.cached_property
    def builder(self) -> "DatasetBuilder":
        """The builder of tfds, which knows features and splits."""
        check_extra("data", "tensorflow_datasets")
        import tensorflow_datasets as tfds

        if not _NAME.fullmatch(self.name):
            raise UserError(
                f"--tfds={self.name}: not a name such as wikipedia/20230601.en or imdb_reviews"
            )
        try:
            return tfds.builder(self.name, data_dir=self.data_dir, try_gcs=False)
        # tfds raises either of these for names, versions and configurations that it does not know.
        except (ValueError, AssertionError) as error:
            raise self._unknown(error) from None

    @property
    def files(self) -> list[Any]:
        """The files of the split: each has `filename`, `take` and `examples_in_shard`."""
        try:
            return self.builder.info.splits[self.split].file_instructions
        except (KeyError, ValueError) as error:
            is_prepared = bool(self.builder.info.splits)
            raise (self._no_split if is_prepared else self._unknown)(error) from None

    def read(self, features: Sequence[str]) -> Iterator[list[Any]]:
        """Yields these features of each example, in the stored order.

        Texts are bytes and numbers floats; of a `ClassLabel` it is the label's name, "-" where the
        example has none (-1).

        Raises:
          UserError: not prepared, no such split or feature, or damaged files.
        """
        import tensorflow as tf

        kinds = self.builder.info.features
        for name in features:
            if name not in kinds or kinds[name].shape != ():
                raise UserError(
                    f"tfds:{self.name}: no feature {name!r} of one text or number; there are "
                    f"{', '.join(sorted(kinds))}"
                )
        convert = [_get_conversion(kinds[name]) for name in features]
        try:
            for example in self._examples():
                values = (example[name].numpy() for name in features)
                yield [function(value) for function, value in zip(convert, values)]
        except tf.errors.OpError as error:
            raise UserError(f"tfds:{self.name}: cannot be read ({error.message[:160]})") from None

    def _examples(self) -> Iterator[dict[str, Any]]:
        import tensorflow_datasets as tfds

        # Files are read one at a time and never shuffled, so that the order is always the same.
        config = tfds.ReadConfig(interleave_cycle_length=1, try_autocache=False)
        options = {"split": self.split, "shuffle_files": False, "read_config": config}
        try:
            return iter(self.builder.as_dataset(**options))
        except ValueError as error:
            raise self._no_split(error) from None
        except AssertionError as error:
            raise self._unknown(error) from None

    def _no_split(self, error: Exception) -> UserError:
        splits = ", ".join(sorted(self.builder.info.splits)) or "train"
        return UserError(
            f"--tfds={self.name}: no split {self.split!r} ({one_line(str(error))[:160]}); pass"
            f" --tfds_split, one or a part of {splits}"
        )

    def _unknown(self, error: Exception) -> UserError:
        return UserError(
            f"--tfds={self.name}: not prepared in {self.data_dir or 'the default folder of tfds'}"
            f" ({one_line(str(error))[:160]}); prepare it with `tfds build`, or name its folder"
            " with --tfds_data_dir"
        )


def _get_conversion(kind: Any) -> Any:
    """Returns the function that makes a value of a feature's NumPy value."""
    if hasattr(kind, "int2str"):
        return lambda value: "-" if value < 0 else kind.int2str(int(value))
    # The digits of a float32 are those of the source, its value as a float64 is another number.
    return lambda value: value if isinstance(value, bytes) else float(str(value))
