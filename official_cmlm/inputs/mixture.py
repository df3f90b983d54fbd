"""The mixture of languages: how often each is read, by an exponent that favours small ones."""

from collections import Counter

from official_cmlm.configs.data import DataConfig
from official_cmlm.errors import UserError
from official_cmlm.records.manifest import Manifest


def shard_repetitions(config: DataConfig, manifest: Manifest) -> list[float]:
    """How often an epoch reads each shard, on average; 0 for languages that are left out.

    In training, a language of n sentences is read c · n^(exponent − 1) times per epoch, so its
    share of the epoch is proportional to n^exponent. The factor c keeps the epoch as long as the
    data. All shards of a language are read equally often. Validation reads each language once.

    Raises:
      UserError: if `config.languages` names a language that the folder lacks, or if languages must
        be distinguished but shards hold several languages.
    """
    if not config.languages and config.language_exponent == 1:
        return [1.0] * len(manifest.shards)
    if not all(shard.language for shard in manifest.shards):
        raise UserError(
            f"{config.input_path}: its shards do not have one language each (rows of translations "
            "never do); leave languages empty and language_exponent at 1, or make the records again"
        )
    missing = [name for name in config.languages if name not in manifest.languages]
    if missing:
        raise UserError(
            f"{config.input_path}: has no {', '.join(missing)}; its languages are "
            f"{', '.join(sorted(manifest.languages))}"
        )
    sizes = Counter(manifest.languages)
    if config.languages:
        sizes = Counter({name: sizes[name] for name in config.languages})
    exponent = config.language_exponent if config.is_training else 1.0
    scale = sum(sizes.values()) / sum(n**exponent for n in sizes.values())
    return [
        scale * sizes[shard.language] ** (exponent - 1) if sizes[shard.language] else 0.0
        for shard in manifest.shards
    ]
