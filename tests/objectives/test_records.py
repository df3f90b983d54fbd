"""Pairs that objectives take, by their labels and languages; others are refused by name."""

import pytest

from data_prep.readers.document import Pair
from official_cmlm.objectives import objectives
from official_cmlm.records.pairs import NLI_LABELS
from tests.conftest import share_folder
from tests.objectives.helpers import make_task, refuses
from tests.pairs_helpers import bitext, nli_rows, write_pairs
from tests.training.helpers import data

CHINESE = ("zh-Hans", "zh-Hans")


def _make_labelled(*languages):
    """Returns two rows of each label, of one pair a row; language tags may have hyphens."""
    return [
        (Pair(("a cat", "a dog"), both, label, "hand:1"),)
        for label in NLI_LABELS * 2
        for both in languages
    ]


ROWS = {
    "bitext": bitext(6),
    "english": bitext(6, "en-en"),
    "mixed": bitext(6, "en-en") + bitext(6, "en-de"),
    "translated_inferences": nli_rows(6, ["en", "de"]),
    "english_inferences": nli_rows(6, ["en"]),
    "inferences_of_two": _make_labelled(("en", "de")),
    "mixed_inferences": _make_labelled(("en", "en"), ("en", "de"), CHINESE),
}
RETRIEVAL, NLI, SAME = "bitext_retrieval", "nli", {"hypothesis_language": "same"}


@pytest.mark.parametrize(
    ("name", "rows", "settings", "languages", "parts"),
    [
        (RETRIEVAL, None, {}, [], ["documents", "pairs"]),
        # Premise and hypothesis do not translate each other.
        (RETRIEVAL, "translated_inferences", {}, [], ["NLI pairs", "entailment"]),
        (RETRIEVAL, "english_inferences", {}, [], ["NLI pairs", "entailment"]),
        (RETRIEVAL, "inferences_of_two", {}, [], ["NLI pairs", "neutral"]),
        # Nothing to translate, unless other pairs, or only others, are read.
        (RETRIEVAL, "english", {}, [], ["one language", "en-en"]),
        (RETRIEVAL, "mixed", {}, ["en-en"], ["one language"]),
        (RETRIEVAL, "english", {"one_language": True}, [], None),
        (RETRIEVAL, "mixed", {}, [], None),
        (NLI, None, {}, [], ["documents", "pairs"]),
        (NLI, "bitext", SAME, [], ["labels"]),
        # One language a row cannot give a hypothesis in another.
        (NLI, "english_inferences", {}, [], ["hypothesis_language", "en-en", "rows of one pair"]),
        (NLI, "english_inferences", SAME, [], None),
        # A premise and a hypothesis in two languages are `different` as they are.
        (NLI, "inferences_of_two", SAME, [], ["hypothesis_language", "en-de", "two languages"]),
        (NLI, "inferences_of_two", {}, [], None),
        # Only languages that are read count.
        (NLI, "mixed_inferences", {}, [], ["en-en", "-".join(CHINESE), "hypothesis_language"]),
        (NLI, "mixed_inferences", SAME, [], ["en-de", "hypothesis_language"]),
        (NLI, "mixed_inferences", {}, ["en-de"], None),
        (NLI, "mixed_inferences", SAME, ["en-en", "-".join(CHINESE)], None),
    ],
)
def test_records(records_dir, vocabulary, tmp_path_factory, name, rows, settings, languages, parts):
    folder = records_dir
    if rows:
        write = lambda path: write_pairs(path, ROWS[rows], vocabulary)  # noqa: E731
        folder = share_folder(tmp_path_factory, f"objectives_{rows}", write)
    config = objectives()[name].config_class(**settings)
    read = {
        split: data(folder, split == "train_data", languages=languages)
        for split in ("train_data", "validation_data")
    }
    if parts is None:
        make_task(folder, name, config, **read)
    else:
        refuses(lambda: make_task(folder, name, config, **read), folder, *parts)
