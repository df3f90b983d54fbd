"""SentEval's COCO in the publisher's form: pickles of protocol 2 as Python 2 wrote them."""

import numpy as np


def binary(value):
    """Returns a value without the header and stop; strings are bytes, as in Python 2."""
    if isinstance(value, np.ndarray):
        shape = b"".join(binary(n) for n in value.shape)
        return (
            b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R(K\x01"
            + (b"(" + shape + b"t")
            + (b"cnumpy\ndtype\n" + binary(value.dtype.str[1:]) + b"K\x00K\x01\x87R(K\x03U\x01<")
            + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89"
            + (b"T" + len(value.tobytes()).to_bytes(4, "little") + value.tobytes() + b"tb")
        )
    if isinstance(value, dict):
        items = b"".join(binary(key) + binary(item) for key, item in value.items())
        return b"}(" + items + b"u"
    if isinstance(value, list):
        return b"](" + b"".join(map(binary, value)) + b"e"
    if isinstance(value, str):
        content = value.encode()
        return b"U" + bytes([len(content)]) + content
    return b"J" + value.to_bytes(4, "little", signed=True)


def make_pickle(value):
    """Returns a whole pickle."""
    return b"\x80\x02" + binary(value) + b"."


def part(count, seed=0, width=6):
    """Returns the content of one file: images, and captions that name their largest values."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=[count, width]).astype(np.float32)
    words = ("cat", "dog", "ship", "tree", "moon", "cup")[:width]
    captions, ids = [], []
    for image, row in enumerate(features):
        ids.append(list(range(len(captions), len(captions) + 6)))
        order = np.argsort(row)[::-1]
        said = " ".join(words[i] for i in order[:3])
        captions += [{"cleaned_caption": f"{said} {image} {k}", "id": k} for k in range(6)]
    return {"features": features, "captions": captions, "image_to_caption_ids": ids}


def write_coco(root, count=40):
    """Writes `COCO/{train,valid,test}.pkl` of a downstream folder."""
    (root / "COCO").mkdir(parents=True, exist_ok=True)
    for seed, (name, size) in enumerate((("train", 2 * count), ("valid", count), ("test", count))):
        (root / "COCO" / f"{name}.pkl").write_bytes(make_pickle(part(size, seed)))
