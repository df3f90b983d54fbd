"""The tables of translations that `make -f experiments/shipped/Makefile multi` makes."""

import subprocess

from tests.binaries import ROOT
from tests.evaluation.toy import write


def _make(folder, target):
    command = ["make", "-f", ROOT / "experiments/shipped/Makefile", target, f"DATA={folder}"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return (folder / target).read_text("utf-8")


def test_tables_of_translations_have_english_first(tmp_path):
    """Paragraphs are joined by key, whatever their order; hypotheses and captions row by row."""
    write(tmp_path / "help/help.en.tsv", ["a\tOne \\n", "b\tTwo", "c\tThree"])
    write(tmp_path / "help/help.de.tsv", ["c\tDrei", "x\tVier", "a\tEins"])
    assert _make(tmp_path, "work/shipped/multi/help.de.tsv") == "Three\tDrei\nOne \\n\tEins\n"
    for language, text in (("en", "Yes"), ("de", "Ja")):
        rows = ["premise\thypo\tlabel", f"p\t{text} 1\tneutral", f"p\t{text} 2\tneutral"]
        write(tmp_path / f"multinli_translated/multinli.train.{language}.tsv", rows)
        write(tmp_path / f"multi30k/train.lc.norm.tok.{language}", [f"{text} a", f"{text} b"])
    assert _make(tmp_path, "work/shipped/multi/inferences.de.tsv") == "Yes 1\tJa 1\nYes 2\tJa 2\n"
    assert _make(tmp_path, "work/shipped/multi/captions.de.tsv") == "Yes a\tJa a\nYes b\tJa b\n"
