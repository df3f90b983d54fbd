"""Where tf.data's interleave stands after so many elements, found without reading them."""

import dataclasses
from collections.abc import Sequence


@dataclasses.dataclass
class _Slot:
    """An input that is being read: its number and how much of it is behind."""

    source: int
    offset: int


def interleave_from(
    sizes: Sequence[int], cycle_length: int, block_length: int, skip: int
) -> tuple[list[tuple[int, int]], int]:
    """How to go on with a sequential `tf.data.Dataset.interleave` after `skip` elements.

    An interleave of the same cycle and block length over the inputs returned, each without its
    first `offset` elements, yields after `remainder` elements what the whole one does after `skip`.
    The work grows with the number of inputs that are used up, not with `skip`.

    Args:
      sizes: elements of each input, in the order in which inputs are opened.
      cycle_length, block_length: as of the interleave.
      skip: at most the sum of `sizes`.

    Returns:
      [(number of the input, offset), …] in the order in which to open them, and `remainder`.
    """
    slots: list[_Slot | None] = [None] * cycle_length
    opened = done = at = 0
    while True:
        left = [sizes[slot.source] - slot.offset for slot in slots if slot is not None]
        # Whole rounds in which every open input gives a full block.
        settled = opened == len(sizes) or len(left) == cycle_length
        rounds = min(left, default=0) // block_length if settled else 0
        rounds = min(rounds, (skip - done) // (block_length * max(1, len(left))))
        for slot in slots:
            if slot is not None:
                slot.offset += rounds * block_length
        done += rounds * block_length * len(left)
        # One round by hand, in which inputs can end and others begin.
        for _ in range(cycle_length):
            if slots[at] is None and opened < len(sizes):
                slots[at] = _Slot(opened, 0)
                opened += 1
            slot = slots[at]
            if slot is not None:
                taken = min(block_length, sizes[slot.source] - slot.offset)
                if done + taken > skip or done == skip:
                    return _order(slots, at, opened, len(sizes)), skip - done
                slot.offset += taken
                done += taken
                # An input that ends with a full block is known to have ended on the next visit.
                if taken < block_length:
                    slots[at] = None
            at = (at + 1) % cycle_length
        if opened == len(sizes) and not any(slots):
            return [], skip - done


def _order(slots: list[_Slot | None], at: int, opened: int, count: int) -> list[tuple[int, int]]:
    """The inputs in the order in which slots are visited from `at` on, then those unopened."""
    order = []
    for slot in (*slots[at:], *slots[:at]):
        if slot is not None:
            order.append((slot.source, slot.offset))
        elif opened < count:
            order.append((opened, 0))
            opened += 1
    return order + [(source, 0) for source in range(opened, count)]
