"""SentEval's COCO in the publisher's form: pickles as Python 2 wrote them, by either protocol."""

import numpy as np


def binary(value):
    """Returns a value in protocol 2, as Python 2 wrote it, without the header and stop."""
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


def text(value):
    """Returns a value in protocol 0, the default of Python 2's `cPickle.dump`."""
    if isinstance(value, np.ndarray):
        shape = b"".join(map(text, value.shape))
        return (
            b"cnumpy.core.multiarray\n_reconstruct\np1\n(cnumpy\nndarray\np2\n(I0\ntS'b'\ntR(I1\n"
            + (b"(" + shape + b"t")
            + (b"cnumpy\ndtype\n(" + text(value.dtype.str[1:]) + b"I0\nI1\ntR(I3\nS'<'\nNNNI-1\n")
            + b"I-1\nI0\ntbI00\n"
            + (text(value.tobytes()) + b"tb")
        )
    if isinstance(value, dict):
        return b"(d" + b"".join(text(k) + text(item) + b"s" for k, item in value.items())
    if isinstance(value, list):
        return b"(l" + b"".join(text(item) + b"a" for item in value)
    if isinstance(value, str | bytes):
        content = value.encode() if isinstance(value, str) else value
        return b"S" + repr(content).encode()[1:] + b"\np9\n"
    return b"I%d\n" % value


def pickled(value, protocol=2):
    """Returns a whole pickle of protocol 0 or 2."""
    return text(value) + b"." if protocol == 0 else b"\x80\x02" + binary(value) + b"."


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
        (root / "COCO" / f"{name}.pkl").write_bytes(pickled(part(size, seed)))
