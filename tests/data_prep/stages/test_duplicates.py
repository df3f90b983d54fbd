"""Removal of duplicates: the earliest stays, whatever the order and the split of the work."""

import random
from collections import Counter, defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.output.dropped import DropCounter
from data_prep.readers import Document
from data_prep.stages import duplicates_keys
from data_prep.stages.duplicates import (
    DuplicateOptions,
    MinHash,
    drop,
    file_keys,
    find_losses,
    losers,
    losses_by_file,
    members,
    merge,
    remove_duplicates,
)
from data_prep.stages.duplicates_text import analyse, exact_keys

QUICK = settings(max_examples=60, deadline=None)
WORDS = [f"{a}{b}" for a in "bdfgklmnprst" for b in ("anu", "ero", "ilo", "ose", "uti")]
OPTIONS = DuplicateOptions(near_paragraphs=MinHash(), min_paragraph_letters=60)


def _text(seed, words: int = 40) -> str:
    return " ".join(random.Random(f"text {seed}").choices(WORDS, k=words)) + "."


def _changed(text: str, seed: int = 0) -> str:
    """One word of the text replaced."""
    words = text.split()
    words[random.Random(seed).randrange(1, len(words))] = "changed"
    return " ".join(words)


def _document(name: str, *paragraphs: str, continues: bool = False) -> Document:
    return Document(name, "en", list(paragraphs), continues)


def _run(files: list[list[Document]], options: DuplicateOptions = OPTIONS):
    counters = DropCounter()
    reads = [lambda file=file: iter(file) for file in files]
    return list(remove_duplicates(reads, options, counters)), counters


# Members of a band's key: places with signatures of few values, so that many are alike.
_PLACE = st.tuples(st.integers(0, 3), st.integers(0, 5), st.just(-1))
_NEAR = MinHash(bands=1, rows=8, threshold=0.6)
_SIGNATURE = st.lists(st.sampled_from([7, 8]), min_size=8, max_size=8).map(bytes)
_MEMBERS = st.dictionaries(_PLACE, _SIGNATURE, max_size=8).map(lambda d: tuple(d.items()))


@QUICK
@given(_MEMBERS, _MEMBERS, _MEMBERS)
def test_merge(one, two, three):
    """Associative, commutative, idempotent; nothing is lost or made up."""
    assert merge(merge(one, two), three) == merge(one, merge(two, three))
    assert merge(one, two) == merge(two, one)
    assert merge(merge(one, two), two) == merge(one, two)
    assert set(merge(one, two)) == {*one, *two}


@QUICK
@given(_MEMBERS, st.randoms(use_true_random=False))
def test_losers_do_not_depend_on_the_order(group, rng):
    """Of an exact key all but the earliest; of a band's those like an earlier one that stays."""
    options = DuplicateOptions(near_documents=_NEAR)
    shuffled = list(group)
    rng.shuffle(shuffled)
    places = sorted(place for place, _ in group)
    exact = sorted(losers(b"D" + bytes(8), iter(shuffled), options))
    assert exact == [(place, "duplicates/exact_document") for place in places[1:]]

    stay, lost = [], []
    for place, signature in sorted(group):
        equal = [sum(a == b for a, b in zip(signature, other)) / 8 for other in stay]
        if any((share - 1 / 256) / (1 - 1 / 256) >= 0.6 for share in equal):
            lost.append((place, "duplicates/near_document"))
        else:
            stay.append(signature)
    assert sorted(losers(b"d" + bytes(8), iter(shuffled), options)) == lost
    # A member that arrives twice is no duplicate of itself.
    assert sorted(losers(b"d" + bytes(8), shuffled * 2, options)) == lost


@st.composite
def _corpora(draw):
    """Files of documents, of few texts and their variants, so that there are many duplicates."""
    texts = [_text(i) for i in range(3)]
    variants = [v for t in texts for v in (t, t.upper(), _changed(t), _changed(t, 1), t[:50])]
    paragraph = st.sampled_from([*variants, "Chapter 1"])
    document = st.lists(paragraph, min_size=1, max_size=4)
    corpus = draw(st.lists(st.lists(document, max_size=4), min_size=1, max_size=4))
    continues = draw(st.booleans())
    return [
        [
            _document(f"{f}#{d}", *paragraphs, continues=continues and d % 2 == 1)
            for d, paragraphs in enumerate(file)
        ]
        for f, file in enumerate(corpus)
    ]


def _as_a_keyed_combine(files, options, rng):
    """What an engine does: elements in any order, groups merged in any order and pieces."""

    def lost(units):
        groups = defaultdict(list)
        for file in rng.sample(range(len(files)), len(files)):
            for key, member in members(file, units[file]):
                groups[key].append((member,))
        found = []
        for key in rng.sample(sorted(groups), len(groups)):
            pieces = groups[key]
            while len(pieces) > 1:
                rng.shuffle(pieces)
                pieces.append(merge(pieces.pop(), pieces.pop()))
            found += losers(key, pieces[0], options)
        rng.shuffle(found)
        return found

    keys = [file_keys(iter(file), options) for file in files]
    documents = lost([k.documents for k in keys])
    gone = losses_by_file(documents)
    rest = [k.paragraphs.without({d for d, _ in gone.get(f, ())}) for f, k in enumerate(keys)]
    return losses_by_file(documents + lost(rest))


@settings(max_examples=30, deadline=None)
@given(_corpora(), st.randoms(use_true_random=False))
def test_any_order_and_any_split_give_the_same(files, rng):
    """The sorted arrays of one machine and a shuffled keyed combine lose the same places."""
    keys = [file_keys(iter(file), OPTIONS) for file in files]
    expected = find_losses(keys, OPTIONS)
    assert _as_a_keyed_combine(files, OPTIONS, rng) == expected
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duplicates_keys, "_BATCH_CHARACTERS", 100)
        assert find_losses([file_keys(f, OPTIONS) for f in files], OPTIONS) == expected
    # All in one file, or each document in its own: the same documents are lost.
    apart = [[document] for file in files for document in file]
    places = [(f, d) for f, file in enumerate(files) for d in range(len(file))]
    found = find_losses([file_keys(f, OPTIONS) for f in apart], OPTIONS)
    flat = {(*places[i], p): why for i, lost in found.items() for (_, p), why in lost.items()}
    assert flat == {(f, *p): why for f, lost in expected.items() for p, why in lost.items()}


@settings(max_examples=30, deadline=None)
@given(_corpora())
def test_what_is_left(files):
    """No exact duplicate is left, a text of each kind is, and a second run removes nothing more."""
    options = DuplicateOptions(min_paragraph_letters=60)
    left, _ = _run(files, options)
    long = [p for d in left for p in d.paragraphs if len(p) > 100]
    keys = exact_keys(analyse(long)).tolist()
    assert len(set(keys)) == len(keys)
    documents = exact_keys(analyse(["".join(d.paragraphs) for f in files for d in f])).tolist()
    exact_only = DuplicateOptions(near_documents=None, paragraphs=False)
    stay, own = _run(files, exact_only)
    assert len(stay) == len(set(documents))
    assert own["duplicates/exact_document"] == len(documents) - len(set(documents))
    assert _run([stay], exact_only) == (stay, DropCounter())
    before = Counter(p for f in files for d in f for p in d.paragraphs)
    assert not Counter(p for d in left for p in d.paragraphs) - before
    assert bool(left) == any(files)


def test_near_duplicates_of_documents():
    """A changed copy goes, another text and a text too short to tell stay."""
    first, short = _text(0, 120), "A short one."
    documents = [_document("a", first), _document("b", _text(1, 120)), _document("c", short)]
    copies = [_document("d", _changed(first)), _document("e", short[:-1] + " too.")]
    left, counters = _run([documents, copies])
    assert [document.id for document in left] == ["a", "b", "c", "e"]
    assert counters == {"duplicates/near_document": 1}


def test_characters_instead_of_words():
    """Chinese has no spaces; a change of one character is found."""
    characters = [chr(code) for code in range(0x4E00, 0x4E60)]
    text = "".join(random.Random(0).choices(characters, k=150))
    other = "".join(random.Random(1).choices(characters, k=150))
    files = [[_document("a", text), _document("b", text[:70] + "龍" + text[71:])]]
    left, counters = _run([*files, [_document("c", other)]])
    assert [document.id for document in left] == ["a", "c"]
    assert counters == {"duplicates/near_document": 1}


def test_a_paragraph_is_not_removed_for_one_that_goes_itself():
    """The only other copy is in a document that is a near duplicate of another."""
    shared = _text("shared", 20)
    body = [_text(i, 60) for i in range(5)]
    first = _document("a", *body)
    copy = _document("b", *body, shared)
    later = _document("c", _text("own"), shared)
    left, counters = _run([[first, copy], [later]])
    assert [(document.id, document.paragraphs) for document in left] == [
        ("a", body),
        ("c", later.paragraphs),
    ]
    assert counters == {"duplicates/near_document": 1}


def test_documents_are_cut_where_paragraphs_go():
    """No new neighbours; short paragraphs may repeat; ids stay unique."""
    again = _text("again")
    file = [
        _document("a", "Chapter 1", again, _text(1)),
        _document("b", "Chapter 1", _text(2), again.upper(), _text(3), "Chapter 1", again),
        _document("c", _text(4), continues=True),
        _document("d", again, continues=True),
        _document("e", _text(5), continues=True),
        _document("f", _text(6), continues=True),
    ]
    left, counters = _run([file])
    assert [(d.id, d.paragraphs, d.continues) for d in left] == [
        ("a", ["Chapter 1", again, _text(1)], False),
        ("b", ["Chapter 1", _text(2)], False),
        ("b#duplicates-1", [_text(3), "Chapter 1"], False),
        ("c", [_text(4)], False),
        ("e", [_text(5)], False),
        ("f", [_text(6)], True),
    ]
    assert counters == {"duplicates/exact_paragraph": 3, "duplicates/no_paragraph_left": 1}


def test_a_document_that_goes_is_no_neighbour():
    """What continued it stands alone; documents that nothing happened to are passed as they are."""
    file = [_document("a", "x y"), _document("b", "X, y."), _document("c", "z", continues=True)]
    counters = DropCounter()
    left = list(drop(file, {(1, -1): "duplicates/exact_document"}, counters))
    assert left[0] is file[0] and left[1] == _document("c", "z")
    assert _run([file])[1] == counters == {"duplicates/exact_document": 1}


def test_nothing_to_do():
    """No files, no documents, no letters."""
    assert _run([])[0] == [] and _run([[]])[0] == []
    file = [_document("a", "* * *"), _document("b", "* * *")]
    assert _run([file]) == (file, DropCounter())
