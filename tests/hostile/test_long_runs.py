"""Files of one long run: a pattern with repeats in repeats would take hours on them."""

import os
import unicodedata

import pytest

from data_prep.readers.docstrings import prose
from data_prep.stages.exclusion import _JSON_STRING
from data_prep.stages.quality_signals import sentence_ends
from official_cmlm.common.errors import UserError
from official_cmlm.common.files import digest
from official_cmlm.common.normal_forms import normalise
from official_cmlm.configs.yaml_loading import parse_yaml
from official_cmlm.search.passages import split_passages

LENGTH = 300_000
RUNS = "# ", "#", "<", "a<", "<!--", "<div>", "<b x=1>", "</p", "&#", "<![CDATA[", "<?", "['", "\n"


@pytest.mark.parametrize("form", ["markdown", "html"])
def test_passages_of_a_long_run(form):
    for run in RUNS:
        text = f"first\n\n# {(run * LENGTH)[:LENGTH]}x"
        assert split_passages(text, form)[0].text.startswith("first")


def test_long_heading_is_not_repeated():
    text = f"# {'x' * LENGTH}\n\n" + "a b c\n\n" * 1000
    assert sum(len(p.text) for p in split_passages(text, "markdown", 10)) < 2 * len(text)


def test_marks_have_the_normal_form_of_the_library():
    run = "\u0301\u0316\u0344" * (LENGTH // 3)
    for form in ("NFC", "NFKC"):
        some = f"a{run[:1000]}\u2460{run[:1000]}"
        assert normalise(form, some) == unicodedata.normalize(form, some)
        assert len(normalise(form, run)) == LENGTH * 4 // 3


def test_patterns_take_one_look_at_a_run():
    assert sentence_ends(["." * LENGTH + "x", "." * LENGTH + ")) x"]) == 1
    assert len(_JSON_STRING.findall('{"a": "\\"' + '\\"' * LENGTH + "\\")) == 2
    for text in (
        "It is read. " + ":a" * LENGTH,
        "It is read. " + "-" * LENGTH,
        "args" + ":" * LENGTH,
    ):
        assert prose(f"{text}x") == []


def test_yaml_with_aliases_of_aliases_is_refused():
    lists = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]
    with pytest.raises(UserError, match="line 3: .*more than 16 aliases"):
        parse_yaml("\n".join(["a0: &a0 [x, x]", *lists]), "a.yaml")
    with pytest.raises(UserError, match="longer than"):
        parse_yaml("[" * LENGTH, "a.yaml")


def test_file_larger_than_memory_is_not_read(tmp_path):
    with open(path := tmp_path / "model.safetensors", "wb") as file:
        os.truncate(file.fileno(), 1 << 42)
    with pytest.raises(UserError, match="larger than this machine's memory"):
        digest([path])
