"""Elements: bundles of small files, or parts of a large one."""

import itertools

import pytest

from data_prep.pipeline.plan import Input, Options, Plan

MB = 1_000_000


def _plan(*inputs, element_bytes=2 * MB, **options):
    inputs = tuple(Input(f"f{number}", *given) for number, given in enumerate(inputs))
    return Plan(Options(element_bytes=element_bytes, **options), inputs, "hash")


def test_bundles():
    """Files are bundled up to the size wanted; a larger one without parts is an element."""
    plan = _plan((MB,), (MB,), (1,), (5 * MB,), (0,), (MB,))
    paths = [[path for path, _ in element] for element in plan.elements]
    assert paths == [["f0", "f1"], ["f2"], ["f3"], ["f4", "f5"]]
    assert all(part is None for element in plan.elements for _, part in element)


def test_parts():
    """Parts have the size wanted or more, in bytes or in examples; nothing joins them."""
    plan = _plan((MB,), (7 * MB, 7 * MB), (0,), (6 * MB, 10), (3 * MB, 3 * MB))
    bounds = [0, 7 * MB // 3, 14 * MB // 3, 7 * MB]
    examples = [0, 3, 6, 10]
    assert plan.elements == (
        (("f0", None),),
        *((("f1", part),) for part in itertools.pairwise(bounds)),
        (("f2", None),),
        *((("f3", part),) for part in itertools.pairwise(examples)),
        (("f4", None),),
    )


def test_parts_are_no_smaller_than_what_they_are_counted_in():
    assert len(_plan((100 * MB, 2)).elements) == 2
    # Nor so small that to open them would take longer than to read them.
    assert len(_plan((200_000, 200_000), element_bytes=1).elements) == 3


def test_partitions():
    """Their number grows with the input, up to a limit that the number of open files sets."""
    sizes = (0, 1 << 26, 1 << 30, 1 << 50)
    assert [_plan((size,)).partitions for size in sizes] == [1, 2, 17, 1024]


_READ, _WRITE = ("read", 40), ("write", 40)
_DOCUMENTS, _PARAGRAPHS = ([(kind, 2), (f"{kind}_lost", 3)] for kind in ("documents", "paragraphs"))


@pytest.mark.parametrize(
    ("documents", "paragraphs", "phases"),
    [
        ("off", "auto", [_WRITE]),
        ("normalised", "auto", [_READ, *_DOCUMENTS, *_PARAGRAPHS, _WRITE]),
        ("normalised", "off", [_READ, *_DOCUMENTS, _WRITE]),
        ("off", "near", [_READ, *_PARAGRAPHS, _WRITE]),
    ],
)
def test_phases(documents, paragraphs, phases):
    """Losses are gathered for sixteen elements at a time."""
    values = {"deduplicate": documents, "deduplicate_paragraphs": paragraphs}
    assert _plan(*[(2 * MB,)] * 40, **values).phases() == phases
