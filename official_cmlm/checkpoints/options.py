"""What a person may say beside the source when importing it."""

import dataclasses

from official_cmlm.tokenization import Vocabulary, load_vocabulary


@dataclasses.dataclass(frozen=True)
class ImportOptions:
    """Choices that override, or add to, what the source says.

    Attributes:
      pooling: `mean`, `max` or `cls`; empty takes the source's, else `mean`.
      vocab_file: a vocabulary for sources that carry none; empty takes the source's.
      lower_case: casing of that vocabulary; None takes what the source says or its entries show.
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
