"""SentEval's COCO: features of images and five captions of each (Conneau and Kiela 2018)."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from official_cmlm.common.errors import UserError
from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.data.pickled_arrays import Refused, read_pickle

CAPTIONS = 5
HINT = (
    "train.pkl, valid.pkl and test.pkl of SentEval's COCO (dl.fbaipublicfiles.com/senteval/"
    "coco_r101_feat) belong into DATA_DIR/senteval/downstream/COCO"
)
_FORM = "SentEval publishes a pickled dict of features, captions and image_to_caption_ids"
# A guard for files that name one long string many times.
_LONGEST_CAPTION = 10_000


@dataclasses.dataclass(frozen=True)
class Captioned:
    """One part of the data.

    Attributes:
      images: float32 `[n, dim]`.
      captions: 5 n sentences, those of image i at 5 i to 5 i + 4.
    """

    images: np.ndarray
    captions: list[str]


def read_coco(data: DataFolder, root: Path) -> dict[str, Captioned]:
    """Reads `train`, `dev` and `test` of a downstream folder."""
    parts = {
        part: _read(data, root / "COCO" / f"{name}.pkl")
        for part, name in (("train", "train"), ("dev", "valid"), ("test", "test"))
    }
    widths = {name: part.images.shape[1] for name, part in parts.items()}
    if len(set(widths.values())) > 1:
        raise UserError(f"{root / 'COCO'}: images of different widths, {widths}; {HINT}")
    return parts


def _read(data: DataFolder, path: Path) -> Captioned:
    with data.file(path, HINT).open("rb") as file:
        try:
            return _check_captions(read_pickle(file), path.stat().st_size)
        except Refused as error:
            raise UserError(f"{path}: {error}; {_FORM}; {HINT}") from None


def _check_captions(content: Any, size: int) -> Captioned:
    """Returns the part that a pickle of `size` bytes holds."""
    if not isinstance(content, dict):
        raise Refused(f"found a {type(content).__name__}")
    keys_needed = ("features", "captions", "image_to_caption_ids")
    if lacking := [key for key in keys_needed if key not in content]:
        keys = ", ".join(map(_show, list(content)[:5]))
        raise Refused(f"found keys {keys or 'none'}, but not {', '.join(lacking)}")
    images = _images(content["features"], size)
    ids, captions = (_plain(content[key]) for key in ("image_to_caption_ids", "captions"))
    sentences = []
    for image in range(len(images)):
        chosen = _plain(_item(ids, image, "image_to_caption_ids"))
        if not isinstance(chosen, list | tuple) or len(chosen) < CAPTIONS:
            raise Refused(f"image {image} has no {CAPTIONS} captions")
        for key in chosen[:CAPTIONS]:
            sentences.append(_caption(_item(captions, key, "captions")))
    return Captioned(images, sentences)


def _plain(value: Any) -> Any:
    """Returns an array as a list, and anything else as it is."""
    return value.tolist() if isinstance(value, np.ndarray) else value


def _show(value: Any) -> str:
    """Returns the first characters of a string or number, else the name of its type."""
    return str(value)[:40] if isinstance(value, str | int) else f"<{type(value).__name__}>"


def _item(container: Any, key: Any, name: str) -> Any:
    """Returns `container[key]` of a list, or of a dict by number."""
    if type(key) is int:
        if isinstance(container, dict) and key in container:
            return container[key]
        if isinstance(container, list | tuple) and 0 <= key < len(container):
            return container[key]
    raise Refused(f"{name} has no entry {_show(key)}")


def _images(features: Any, size: int) -> np.ndarray:
    images = features
    if not isinstance(images, np.ndarray):
        if not isinstance(features, list | tuple) or not features:
            raise Refused(f"features is a {type(features).__name__}, not rows of numbers")
        shapes = {getattr(row, "shape", None) for row in features}
        if None in shapes or len(shapes) > 1:
            raise Refused("features is not a list of arrays of one shape")
        # A pickle may name one row many times, which would expand to more than the file holds.
        if len(features) * features[0].nbytes > size:
            raise Refused(f"features has {len(features)} rows, more than its file holds")
        images = np.stack(features)
    if images.dtype.kind not in "biuf":
        raise Refused(f"features has values of type {images.dtype}, not numbers")
    if images.ndim != 2 or not images.size:
        raise Refused(f"features has the shape {images.shape}, not [images, width]")
    with np.errstate(over="ignore"):
        images = np.asarray(images, np.float32)
    if not np.isfinite(images).all():
        raise Refused("features has values that are not finite")
    return images


def _caption(entry: Any) -> str:
    """Returns the toolkit's sentence: the cleaned caption and a full stop, single spaces."""
    text = entry.get("cleaned_caption") if isinstance(entry, dict) else None
    if not isinstance(text, str) or len(text) > _LONGEST_CAPTION:
        raise Refused("a caption without a string cleaned_caption of at most 10,000 characters")
    try:
        # Strings of Python 2 were read as Latin-1; most are UTF-8.
        text = text.encode("latin-1").decode("utf-8")
    except UnicodeError:
        pass
    return " ".join([*text.split(), "."])
