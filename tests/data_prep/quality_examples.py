"""Documents to keep and to drop that the tests of the classifier share."""

import random

from data_prep.readers import Document


def prose(count, seed=0):
    """Documents that read a little like text."""
    rng = random.Random(seed)
    words = "the of and that house river with have to be garden old was it stood".split()
    return [
        Document(f"p{n}", "en", [" ".join(rng.choices(words, k=rng.randint(15, 30))) + "."])
        for n in range(count)
    ]


def menus(count, seed=1):
    """Documents that are a list of links."""
    rng = random.Random(seed)
    words = "Home News Sports Login Contact Shop Garden House Of The".split()
    return [
        Document(f"m{n}", "en", [" | ".join(rng.choices(words, k=rng.randint(6, 12)))])
        for n in range(count)
    ]
