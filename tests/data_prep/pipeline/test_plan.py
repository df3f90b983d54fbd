"""Elements, which are bundles of files, and the phases of a run."""

import pytest

from data_prep.pipeline.plan import Input, Options, Plan
from data_prep.stages.duplicates import DuplicateOptions

MB = 1_000_000


def _plan(*inputs, element_bytes=2 * MB, **options):
    inputs = tuple(Input(f"f{number}", *given) for number, given in enumerate(inputs))
    return Plan(Options(element_bytes=element_bytes, **options), inputs, "hash")


def test_files_are_bundled_up_to_a_size():
    """A larger one is an element."""
    plan = _plan((MB,), (MB,), (1,), (5 * MB,), (0,), (MB,))
    paths = [[item.path for item in element] for element in plan.elements]
    assert paths == [["f0", "f1"], ["f2"], ["f3"], ["f4", "f5"]]


def test_partitions_grow_with_the_input():
    """There is a limit, which the number of open files sets."""
    sizes = (0, 1 << 26, 1 << 30, 1 << 50)
    assert [_plan((size,)).partitions for size in sizes] == [1, 2, 17, 1024]


_READ, _WRITE = ("read", 40), ("write", 40)
_DOCUMENTS, _PARAGRAPHS = (
    [(f"compare_{kind}", 2), (f"collect_{kind}", 3)] for kind in ("documents", "paragraphs")
)


@pytest.mark.parametrize(
    ("documents", "paragraphs", "phases"),
    [
        ("off", "auto", [_WRITE]),
        ("normalised", "auto", [_READ, *_DOCUMENTS, *_PARAGRAPHS, _WRITE]),
        ("normalised", "off", [_READ, *_DOCUMENTS, _WRITE]),
        ("off", "near", [_READ, *_PARAGRAPHS, _WRITE]),
    ],
)
def test_phases_are_those_that_the_options_need(documents, paragraphs, phases):
    """Duplicates are collected for sixteen elements at a time."""
    plan = _plan(*[(2 * MB,)] * 40, duplicates=DuplicateOptions(documents, paragraphs))
    assert [(phase, len(parts)) for phase, parts in plan.list_phases()] == phases
