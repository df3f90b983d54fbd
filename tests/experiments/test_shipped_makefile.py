"""The tables of translations that `make -f experiments/shipped/Makefile multi` makes."""

import subprocess

from tests.binaries import ROOT
from tests.evaluation.toy import write


def _make(folder, target):
    command = ["make", "-f", ROOT / "experiments/shipped/Makefile", target, f"DATA={folder}"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return (folder / target).read_text("utf-8")


def test_tables_of_translations_have_english_first(tmp_path):
    """Paragraphs are joined by key, whatever their order; inferences and captions row by row."""
    write(tmp_path / "help/help.en.tsv", ["a\tOne \\n", "b\tTwo", "c\tThree"])
    write(tmp_path / "help/help.de.tsv", ["c\tDrei", "x\tVier", "a\tEins"])
    assert _make(tmp_path, "work/shipped/multi/help.de.tsv") == "Three\tDrei\nOne \\n\tEins\n"
    for language, text in (("en", "Yes"), ("de", "Ja")):
        rows = ["premise\thypo\tlabel", f"{text} 1\t{text} 2\tx", f"{text} 3\t{text} 4\tx"]
        write(tmp_path / f"multinli_translated/multinli.train.{language}.tsv", rows)
        write(tmp_path / f"multi30k/train.lc.norm.tok.{language}", [f"{text} a", f"{text} b"])
    pairs = "".join(f"Yes {i}\tJa {i}\n" for i in range(1, 5))
    assert _make(tmp_path, "work/shipped/multi/inferences.de.tsv") == pairs
    assert _make(tmp_path, "work/shipped/multi/captions.de.tsv") == "Yes a\tJa a\nYes b\tJa b\n"
