"""The mixture of folders, by their weights, and of languages, by an exponent for small ones."""

from official_cmlm.configs.data import DataConfig
from official_cmlm.errors import UserError
from official_cmlm.records.manifest import Manifest, parts_of


def shard_repetitions(config: DataConfig, manifest: Manifest) -> list[float]:
    """How often an epoch reads each shard, on average; 0 for languages that are left out.

    In training, a language of n sentences is read c · n^(exponent − 1) times per epoch, so its
    share of the epoch is proportional to n^exponent. The factor c keeps the epoch as long as the
    data. All shards of a language are read equally often. Validation reads each language once.

    Of several folders, this holds within each. If they have weights, a folder of n of all N
    sentences, with the share w of all weights, is read w · N / n times per epoch, so its share of
    the epoch is w, and the epoch is as long as all folders together.

    Raises:
      UserError: if `config.languages` names a language that the folders lack, or if a folder has
        none of them, or if languages must be distinguished but shards hold several languages.
    """
    parts = parts_of(config.folders() or [""], manifest)
    if missing := [name for name in config.languages if name not in manifest.languages]:
        for folder, part in parts:
            _check_languages(folder, part)
        raise UserError(
            f"{config.named_folders}: has no {', '.join(missing)}; its languages are "
            f"{', '.join(sorted(manifest.languages))}"
        )
    sizes = [_sizes(config, folder, part) for folder, part in parts]
    times = [1.0] * len(parts)
    weights = [source.weight for source in config.sources]
    if config.is_training and len(parts) > 1 and None not in weights:
        shares = [weight / sum(weights) for weight in weights]
        length = sum(sum(each.values()) for each in sizes)
        times = [share * length / sum(each.values()) for share, each in zip(shares, sizes)]
    return [
        repetition
        for (_, part), each, factor in zip(parts, sizes, times, strict=True)
        for repetition in _of_languages(config, part, each, factor)
    ]


def _sizes(config: DataConfig, folder: str, manifest: Manifest) -> dict[str, int]:
    """Language -> size of each language of a folder that is read; "" where they are not told apart.

    Sizes are sentences, of pairs with languages pairs.
    """
    if not config.languages and config.language_exponent == 1:
        return {"": manifest.sentences}
    _check_languages(folder, manifest)
    chosen = set(config.languages or manifest.languages)
    sizes = {name: size for name, size in manifest.languages.items() if name in chosen}
    if not sizes:
        raise UserError(
            f"{folder}: has none of {', '.join(config.languages)}; its languages are "
            f"{', '.join(sorted(manifest.languages))}; leave it out of sources"
        )
    return sizes


def _check_languages(folder: str, manifest: Manifest) -> None:
    if not all(shard.language for shard in manifest.shards):
        raise UserError(
            f"{folder}: its shards do not have one language each (rows of translations "
            "never do); leave languages empty and language_exponent at 1, or make the records again"
        )


def _of_languages(
    config: DataConfig, manifest: Manifest, sizes: dict[str, int], factor: float
) -> list[float]:
    """How often each shard of a folder is read that is read `factor` times."""
    if not config.languages and config.language_exponent == 1:
        return [factor] * len(manifest.shards)
    exponent = config.language_exponent if config.is_training else 1.0
    scale = factor * sum(sizes.values()) / sum(n**exponent for n in sizes.values())
    times = {name: scale * size ** (exponent - 1) for name, size in sizes.items() if size}
    return [times.get(shard.language, 0.0) for shard in manifest.shards]
