"""Ids as text for people: what each kind of vocabulary tokenised can be read again."""

import pytest

from official_cmlm.checkpoints.formats.huggingface_tokenizer import read_vocabulary
from official_cmlm.tokenization import build_tokenizer
from tests.checkpoints.helpers import REFERENCES


@pytest.mark.parametrize(
    ("name", "text", "whole"),
    [
        ("bert", "a cat walked", "[CLS] a cat walked [SEP]"),
        ("roberta", "Où est le café ? 東京", "<s>Où est le café ? 東京</s>"),
        ("xlm_roberta", "a small cat", "<s> a small cat</s>"),
    ],
)
def test_tokenised_text_is_read_again(name, text, whole):
    vocabulary = read_vocabulary(REFERENCES / name, None)
    ids = build_tokenizer(vocabulary, tensorflow=False).tokenize([text]).to_list()[0]
    assert vocabulary.decode(ids) == text
    special = vocabulary.special_ids
    assert vocabulary.decode([special["cls"], *ids, special["sep"]]) == whole
    assert vocabulary.decode([]) == ""


def test_a_part_of_a_word_alone_keeps_its_mark(vocabulary):
    ids = [vocabulary.tokens.index(token) for token in ("##t", "c", "##a", "##t", "[MASK]", ".")]
    assert vocabulary.decode(ids) == "##t cat [MASK] ."
