"""Options of an import."""

import dataclasses

from official_cmlm.tokenization import Vocabulary, load_vocabulary


@dataclasses.dataclass(frozen=True)
class ImportOptions:
    """Settings that override the source's, or that the source lacks.

    Attributes:
      pooling: `mean`, `max` or `cls`; empty takes the source's, else `mean`.
      vocab_file: a vocabulary for sources without one; empty takes the source's.
      lower_case: whether that vocabulary is uncased; None: as the source says, else by its entries.
      drop_head: leave out the language-model head.
      drop_surplus: leave out tensors that the encoder has no place for.
    """

    pooling: str = ""
    vocab_file: str = ""
    lower_case: bool | None = None
    drop_head: bool = False
    drop_surplus: bool = False

    def vocabulary(self) -> Vocabulary:
        """Reads `vocab_file`."""
        return load_vocabulary(self.vocab_file, self.lower_case)
