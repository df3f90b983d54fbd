"""Data preparation in a hostile world: every mistake ends as one line that names its cause.

A table of binaries, what they are given and what they must say; then what a table cannot hold.
"""

import contextlib
import importlib
import json
import os
import random
import resource
import shlex
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from absl import app, flags
from absl.testing import flagsaver
from hypothesis import given
from hypothesis import strategies as st

from data_prep.counts import DropCounter
from data_prep.output.folder import check_place
from data_prep.sentences import cut_long_sentence, rejoin_titles, segment
from data_prep.stages.normalise import mend_hyphens
from official_cmlm import cli
from official_cmlm.common import languages, progress
from official_cmlm.common.errors import UserError
from official_cmlm.common.files import atomic_write, make_unfinished_path
from official_cmlm.common.input_files import expand_inputs
from official_cmlm.records.manifest import load_manifest
from tests import binaries
from tests.conftest import WORDS
from tests.data_prep.pipeline.runs import write_text

ROOT = Path(__file__).parents[2]
RECORDS = ("--vocab_file=vocab.txt", "--output_dir=out")
TEXT = "--input=text.txt"
# Words that stand for flags in a command line of the tables below.
SHORT = {
    "TEXT": [TEXT],
    "VOCAB": RECORDS[:1],
    "RECORDS": RECORDS,
    "PAIRS": ["--input=a.en,a.de", "--languages=en,de"],
    "LEARN": ["--kept=text.txt", "--dropped=a.en"],
}


@pytest.fixture
def here(tmp_path, vocabulary, monkeypatch):
    """The working directory: a little text of each form, a vocabulary, and things that are none."""
    monkeypatch.chdir(tmp_path)
    vocabulary.save(tmp_path)
    rng = random.Random(0)

    def sentence() -> str:
        return " ".join(rng.choices(WORDS, k=8)).capitalize() + "."

    Path("text.txt").write_text("\n\n".join(f"{sentence()} {sentence()}" for _ in range(40)))
    for name in ("a.en", "a.de"):
        Path(name).write_text("".join(f"{sentence()}\n" for _ in range(20)))
    Path("folder").mkdir()
    Path("folder/text.txt").write_text(Path("text.txt").read_text())
    Path("taken").write_text("precious")
    Path("link.txt").symlink_to("text.txt")
    os.link("text.txt", "hard.txt")
    Path("nothing.txt").symlink_to("missing.txt")
    os.mkfifo("pipe.txt")
    Path("lang.jsonl").write_text(
        '{"text": "A cat sat. It ran.", "lang": "<script>|\\u0000"}\n{"text": "A dog. It sat."}\n'
    )
    return tmp_path


@pytest.fixture
def call(capsys):
    """Runs a command line in this process; returns (exit status, lines of errors)."""

    def call(command: str, *arguments: str) -> tuple[int, list[str]]:
        capsys.readouterr()
        binary, *words = shlex.split(command)
        flags_of_words = [flag for word in words for flag in SHORT.get(word, [word])]
        name = binary if "." in binary else f"data_prep.{binary}"
        status = binaries.call(name, *flags_of_words, *arguments)
        output, shown = capsys.readouterr()
        # For the test itself.
        print(output)
        assert "Traceback" not in shown
        lines = [line for line in shown.splitlines() if "error: " in line]
        # The line does not continue a progress bar.
        assert all(line.startswith("error: ") for line in lines), lines
        return status, lines

    return call


# Kind of mistake -> (command line, what the line says).
HOSTILE = {
    "an input or another output would be overwritten": [
        ("hold_out TEXT --train_output=text.txt --held_out_output=b",
         "text.txt: is also an input (text.txt)"),
        ("hold_out TEXT --train_output=hard.txt --held_out_output=b --overwrite",
         "hard.txt: is also an input (text.txt)"),
        ("hold_out TEXT --train_output=b --held_out_output=./b", "./b: is given for two outputs"),
        ("hold_out TEXT --train_output=b --held_out_output=nothing.txt", "exists already"),
        ("train_quality_classifier LEARN --output=a.en --overwrite", "a.en: is also an input"),
        ("build_vocab TEXT --output=hard.txt --overwrite", "hard.txt: is also an input"),
        ("docstrings --output=taken", "taken: exists already"),
        ("create_documents --input=taken VOCAB --output_dir=taken",
         "taken: exists and holds no records"),
    ],
    "input that may never end": [
        ("create_documents --input=pipe.txt RECORDS", "pipe.txt: a pipe, not a file"),
        ("create_documents --input=/dev/zero RECORDS", "/dev/zero: a device, not a file"),
        ("create_documents --input=socket RECORDS", "socket: a socket, not a file"),
        ("create_documents TEXT --exclude=pipe.txt RECORDS", "pipe.txt: a pipe"),
        ("create_documents TEXT --vocab_file=pipe.txt --output_dir=out", "not a regular file"),
        ("create_documents TEXT VOCAB --output_dir=pipe.txt",
         "pipe.txt: exists and holds no records"),
        ("prepare TEXT --quality_model=pipe.txt RECORDS", "pipe.txt: not a regular file"),
        ("create_pairs --input=a.en,pipe.txt --languages=en,de RECORDS",
         "pipe.txt: a pipe, not a file"),
        ("build_vocab TEXT --output=/dev/null --overwrite", "/dev/null: not a regular file"),
        ("create_documents --input=nothing.txt RECORDS", "nothing.txt: a link that leads to no"),
        ("create_documents --input=noth*.txt RECORDS", "nothing.txt: no such file"),
    ],
    "settings that take all memory, or mean nothing": [
        ("prepare TEXT RECORDS --deduplicate=near --near_bands=100000000", "near_bands"),
        ("prepare TEXT RECORDS --element_mb=nan", "element_mb=nan: must be"),
        ("create_documents TEXT RECORDS --shard_mb=inf", "shard_mb"),
        ("create_pairs PAIRS RECORDS --max_length_ratio=nan", "max_length_ratio=nan: must be"),
        ("hold_out TEXT --train_output=b --held_out_output=c --share=nan", "share=nan: must be"),
        ("train_quality_classifier LEARN --output=m --l2=nan", "l2=nan: must be at least 0"),
        ("train_quality_classifier LEARN --output=m --seed=-1", "seed=-1: must be in [0, 429496"),
        ("random_strings --output=s --seed=4294967296", "seed=4294967296: must be in [0"),
        (f"random_strings --output=s --count={'9' * 5000}", "count"),
        ("random_strings --output=s --count=many", "count"),
        ("random_strings --output=s --colour=red", "Unknown command line flag 'colour'"),
        ("experiments.demo.report --model_dir=m --training_records=r --held_out_records=h "
         "--output_dir=o --pairs=-1", "pairs"),
        ("experiments.evaluate --max_seq_length=0", "max_seq_length"),
        ("export.export_tfhub --model_dir=m --export_dir=e --seq_length=-1", "seq_length"),
    ],
    "places that cannot be written": [
        ("hold_out TEXT --train_output=/proc/1/x --held_out_output=b", "/proc/1/x: cannot"),
        ("hold_out TEXT --train_output=folder --held_out_output=b", "folder: a folder"),
        ("hold_out TEXT --train_output= --held_out_output=b", "no name for a file"),
        ("hold_out TEXT --train_output=gs://b/x --held_out_output=b", "only local files"),
        ("train_quality_classifier LEARN --output=/proc/1/x", "/proc/1/x: cannot be written"),
        ("build_vocab TEXT --output=/proc/1/x/v", "/proc/1/x/v: cannot be written"),
        ("docstrings --output=/proc/1/x", "/proc/1/x: cannot be written"),
        ("random_strings --output=/proc/1/x", "/proc/1/x: cannot be written"),
        ("create_documents TEXT VOCAB --output_dir=/proc/1/x", "/proc/1/x: cannot be written"),
        ("create_documents TEXT VOCAB --output_dir=", "name a folder"),
        (f"create_documents TEXT VOCAB --output_dir={'o' * 300}", "too long"),
        ("create_pairs PAIRS VOCAB --output_dir=/proc/1/x", "/proc/1/x: cannot be written"),
        ("create_pairs PAIRS VOCAB --output_dir=gs://b/x", "must be on a file system"),
    ],
    "languages that are none": [
        ("create_documents TEXT RECORDS '--language=<script>'",
         "language: '<script>' is not a language tag (BCP 47)"),
        ("create_documents --input=de-toolongforatag:text.txt RECORDS", "'de-toolongforatag'"),
        ("create_documents --input=lang.jsonl RECORDS",
         "lang.jsonl:1: \"lang\": '<script>|\\x00' is not a language tag"),
        ("prepare TEXT RECORDS '--keep_languages=en,e|n'", "'e|n' is not a language tag"),
        ("create_pairs --input=a.en,a.de '--languages=en,d e' RECORDS", "'d e' is no"),
        ("train_quality_classifier LEARN --output=m '--language=e n'", "'e n' is not a language"),
    ],
    "names": [
        ("create_documents TEXT VOCAB --output_dir=\udcff", "not UTF-8"),
        ("create_documents --input=\udcff.txt RECORDS", "\\udcff.txt: no such file"),
        ("create_documents --input=a\x1b[2J RECORDS", "a\\x1b[2J: no such file"),
        (f"create_documents --input={'x' * 5000} RECORDS", "no such file"),
        ("prepare TEXT RECORDS stray", "unexpected argument 'stray'"),
    ],
}  # fmt: skip


def _hostile_cases():
    """Yields all cases; the fast suite has the first one of each binary and kind."""
    for kind, cases in HOSTILE.items():
        seen = set()
        for number, case in enumerate(cases):
            binary = case[0].split()[0]
            marks = pytest.mark.long if binary in seen else ()
            seen.add(binary)
            yield pytest.param(*case, id=f"{kind} {number}", marks=marks)


@pytest.mark.parametrize(("command", "message"), _hostile_cases())
def test_hostile(here, call, command, message):
    """Exit status 1, one line with what and where, before anything is written."""
    listening = socket.socket(socket.AF_UNIX)
    listening.bind("socket")
    before = {path: path.lstat().st_mtime_ns for path in here.rglob("*")}
    status, lines = call(command)
    assert (status, len(lines)) == (1, 1), lines
    assert message in lines[0] and len(lines[0]) < 6000
    assert {path: path.lstat().st_mtime_ns for path in here.rglob("*")} == before
    listening.close()


CLEAN = [
    ("hold_out TEXT --train_output=b --held_out_output=c --share=0.3", "b"),
    ("train_quality_classifier LEARN --output=m --lines=wrapped --held_out=0 --bits=8", "m"),
    ("build_vocab TEXT --output=v.txt --vocab_size=60 --nocheck", "v.txt"),
    ("random_strings --output=s --count=5 --seed=4294967295", "s"),
    ("create_documents TEXT RECORDS --language=zh_Hant-TW", "out/dataset.json"),
    ("prepare --input=de:text.txt RECORDS --near_bands=256", "out/dataset.json"),
    ("create_pairs --input=a.en,a.de --languages=en,de-AT RECORDS", "out/dataset.json"),
]


@pytest.mark.parametrize(("command", "output"), CLEAN)
def test_clean(here, call, command, output):
    """The same binaries with nothing to object to."""
    assert call(command) == (0, [])
    assert Path(output).stat().st_size


def test_records_with_names_of_any_bytes(here, call, capsys):
    """Neither the name of a file nor that of the folder becomes a stack trace."""
    names = ["\udcff.txt", "a\nb.txt", "n" * 251 + ".txt"]
    for name in names:
        Path("folder", name).write_text(f"A cat sat. {WORDS[len(name) % 9]} it ran.")
    Path("folder/bad\n\udcfe.jsonl").write_text("{")
    arguments = ["--input=folder", "--vocab_file=vocab.txt", "--on_error=skip"]
    for binary in ("create_documents", "prepare"):
        assert call(binary, *arguments, f"--output_dir={binary}\nout") == (cli.EXIT_SKIPPED, [])
        assert load_manifest(f"{binary}\nout").documents == 43
    arguments = ["--input=folder", "--on_error=skip", "--share=0.3"]
    status, _ = call("hold_out", *arguments, "--train_output=\udcfd", "--held_out_output=c")
    assert status == cli.EXIT_SKIPPED and Path("\udcfd").exists()


def test_pipes_and_sockets_in_a_folder_are_left_out(here, capsys):
    """It is left out and named, by a walk and by a glob; a link to nothing stays, as a fault."""
    for pattern, expected in (("folder", ["folder/text.txt"]), ("folder/*", ["folder/text.txt"])):
        for name in ("pipe", "socket", "up"):
            Path("folder", name).unlink(missing_ok=True)
        os.mkfifo("folder/pipe")
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind("folder/socket")
            Path("folder/up").symlink_to("..")
            assert expand_inputs([pattern]) == expected
        lines = capsys.readouterr().err.splitlines()
        assert "skipped: folder/pipe: a pipe, not a file" in lines
        assert "skipped: folder/socket: a socket, not a file" in lines
        link = "skipped: folder/up: a link to a folder; name it with --input to read it too"
        assert (link in lines) == (pattern == "folder")
    Path("folder/gone.txt").symlink_to("nowhere")
    assert expand_inputs(["folder"]) == ["folder/gone.txt", "folder/text.txt"]


def test_any_folders_in_a_glob_are_not_links(here):
    """Two links that lead back to their folder would give 2^40 paths."""
    for name in ("one", "two"):
        Path("folder", name).symlink_to(".")
    Path("away").mkdir()
    Path("away/more.txt").write_text("x")
    Path("folder/linked").symlink_to("../away")
    assert expand_inputs(["folder/**/*.txt"]) == ["folder/text.txt"]
    assert expand_inputs(["folder/linked/*"]) == ["folder/linked/more.txt"]
    assert expand_inputs(["fold*/l*/**"]) == ["folder/linked/more.txt"]


@pytest.mark.parametrize(
    "pattern", ["**", "**/*.txt", "a/**", "**/b/*", "a*/**/*.txt", "a/**/b/**"]
)
def test_any_folders_in_a_glob_are_those_of_the_standard_library(tmp_path, monkeypatch, pattern):
    import glob

    monkeypatch.chdir(tmp_path)
    for name in ("x.txt", "a/y.txt", "a/b/z.txt", "a/b/.hidden", "a/.h/q.txt", "a/[b]/w.txt"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text("x")
    result = filter(os.path.isfile, glob.glob(pattern, recursive=True))
    assert expand_inputs([pattern]) == sorted(result)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives up rights that only root has")
def test_an_unreadable_folder():
    """It is named, and not taken for an empty one, by a walk and by a glob."""
    # Not below the folder of all tests, which is closed to others.
    with tempfile.TemporaryDirectory() as name:
        Path(name, "closed").mkdir(mode=0)
        Path(name, "a.txt").write_text("x")
        os.chmod(name, 0o755)
        os.seteuid(65534)
        try:
            for pattern in (name, f"{name}/**/*.txt"):
                with pytest.raises(UserError, match=r"closed: cannot be listed \(Permission"):
                    expand_inputs([pattern])
        finally:
            os.seteuid(0)


def test_an_input_in_the_folder_to_replace(here, call):
    """It would be removed with the folder: refused, with --overwrite too; so is a foreign file."""
    assert call("create_documents", TEXT, *RECORDS)[0] == 0
    Path("out/mine.txt").write_text("A cat sat. It ran.")
    for flag in ("--input=out/mine.txt", "--input=out", f"{TEXT},out/mine.txt"):
        status, lines = call("create_documents", flag, *RECORDS, "--overwrite")
        assert status == 1 and "mine.txt: an input in the folder to write" in lines[0]
    status, lines = call("prepare", TEXT, *RECORDS, "--overwrite", "--exclude=out/mine.txt")
    assert status == 1 and "out/mine.txt: an input in the folder to write" in lines[0]
    assert Path("out/mine.txt").exists()
    # The folder's own vocabulary is written again.
    arguments = ["--vocab_file=out/vocab.txt", "--output_dir=out", "--overwrite"]
    assert call("create_documents", TEXT, *arguments) == (0, [])


def test_somebodys_folder_with_the_unfinished_name(here, call):
    """It is not removed; pairs are written beside it."""
    Path("out.partial").mkdir()
    Path("out.partial/thesis.txt").write_text("mine")
    status, lines = call("create_documents", TEXT, *RECORDS)
    assert status == 1 and "out.partial: holds other files (thesis.txt); name another" in lines[0]
    assert call("create_pairs PAIRS RECORDS") == (0, [])
    assert Path("out.partial/thesis.txt").read_text() == "mine"
    Path("out2.partial").symlink_to("folder")
    Path("out3.partial").touch()
    for name in ("out2", "out3"):
        with pytest.raises(UserError, match=f"{name}.partial: exists and is not a folder; move"):
            check_place(name)


@pytest.mark.parametrize(
    "command",
    [
        "hold_out TEXT --train_output=b --held_out_output=c --share=0.3",
        "build_vocab TEXT --output=v.txt --vocab_size=150 --nocheck",
        "random_strings --output=s",
        "create_documents TEXT RECORDS",
        "prepare TEXT RECORDS --deduplicate=near",
        "create_pairs PAIRS RECORDS",
        "train_quality_classifier LEARN --output=m --lines=wrapped --held_out=0 --bits=8",
    ],
)
@pytest.mark.parametrize("most", [pytest.param(0, marks=pytest.mark.long), 300])
def test_a_disk_that_takes_no_more(here, call, command, most):
    """As a limit on the size of files, which fails as a full disk does; nothing half is left."""
    before = sorted(here.iterdir())
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, limits[1]))
        status, lines = call(command)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (status, len(lines)) == (1, 1), lines
    assert "File too large" in lines[0]
    left = set(here.iterdir()) - set(before) - {here / "out.partial"}
    assert not left
    assert call(command) == (0, [])


def test_the_same_command_again(here, call, capsys):
    """Says that all is there, where that is known, and else that it will not overwrite."""
    for binary, more in (("create_documents", []), ("prepare", ["--deduplicate=exact"])):
        common = ["--vocab_file=vocab.txt", f"--output_dir={binary}", *more]
        arguments = [TEXT, *common]
        assert call(binary, *arguments)[0] == 0
        written = Path(binary, "dataset.json").stat().st_mtime_ns
        assert call(binary, *arguments)[0] == 0
        assert "complete already, made from the same input" in capsys.readouterr().out
        assert Path(binary, "dataset.json").stat().st_mtime_ns == written

        def check_refused(*arguments: str) -> None:
            status, (line,) = call(binary, *arguments)  # noqa: B023
            assert status == 1 and "holds records already; pass --overwrite" in line

        check_refused(*arguments, "--max_sentences=9")
        check_refused("--input=folder", *common)
        shard = next(Path(binary).glob("*.tfrecord"))
        content = shard.read_bytes()
        shard.unlink()
        check_refused(*arguments)
        shard.write_bytes(content)
        assert call(binary, *arguments) == (0, [])
        # The same size and perhaps another content.
        os.utime("text.txt")
        check_refused(*arguments)


def test_an_error_after_a_bar(capsys):
    """The bar's line ends first."""
    bar = progress.bar(10, "B", "reading")
    bar.update(1)
    assert cli._fail("wrong") == 1
    assert capsys.readouterr().err.split("\n")[-2:] == ["error: wrong", ""]
    bar.close()


def test_memory_and_the_file_system(monkeypatch, capsys):
    """Errors that are not a `UserError` are one line too; a bug keeps its stack trace."""
    import tensorflow as tf

    def run(error):
        def main():
            raise error

        result = []
        monkeypatch.setattr(app, "run", lambda main, flags_parser: result.append(main(["prog"])))
        cli.run(main)
        return result[0], capsys.readouterr().err

    refused = tf.errors.PermissionDeniedError(None, None, "/x/y; Permission denied [Op:SaveV2]")
    assert run(refused) == (1, "error: /x/y: Permission denied\n")
    assert run(MemoryError("12 GiB"))[1].startswith("error: not enough memory (12 GiB)")
    assert run(OSError(28, "No space left on device", b"a\xff"))[1].startswith(
        "error: a\\udcff: No"
    )
    with pytest.raises(ZeroDivisionError):
        run(ZeroDivisionError())


@pytest.mark.parametrize("arguments", [["--output=s"], ["--help"]])
def test_standard_output_that_takes_nothing(here, arguments):
    """A real process, as Python itself writes the last of it."""
    command = [sys.executable, "-m", "data_prep.random_strings", *arguments, "--count=3"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, env=environment
        )
    assert done.returncode and "Traceback" not in done.stderr
    if "--help" not in arguments:
        assert done.stderr.splitlines()[1:] == ["error: No space left on device"]


def test_long_names(tmp_path):
    """A name of 255 bytes, in which a character may take several, can be written."""
    for name in ("x" * 255, "é" * 127, "\udcff" * 255):
        with atomic_write(tmp_path / name) as file:
            file.write(b"x")
        assert (tmp_path / name).read_bytes() == b"x"
        assert make_unfinished_path(tmp_path / name).name.endswith(".tmp")


def _cut_by_definition(sentence, counters, most):
    """Cuts by the definition, in a time that grows with the square of the length."""
    while len(sentence) > most:
        cut = sentence.rfind(" ", 1, most + 1)
        cut = cut if cut > 0 else most
        counters["records/sentence_cut"] += 1
        yield sentence[:cut].rstrip()
        sentence = sentence[cut:].lstrip()
    if sentence:
        yield sentence


@given(st.text(" ab\u00a0\u3000\n\x1c漢", max_size=60), st.integers(1, 12))
def test_long_sentences_are_cut_as_defined(sentence, most):
    result, expected = Counter(), Counter()
    assert list(cut_long_sentence(sentence, result, most)) == list(
        _cut_by_definition(sentence, expected, most)
    )
    assert result == expected


def test_long_sentences_are_not_copied_at_each_cut():
    """The characters that are handled are those that are given, whatever the length."""

    class Counted(str):
        taken = 0

        def __getitem__(self, at):
            part = str.__getitem__(self, at)
            Counted.taken += len(part)
            return Counted(part)

    sentence = Counted("word " * 20_000)
    pieces = list(cut_long_sentence(sentence, Counter(), 100))
    assert len(pieces) >= 1000 and Counted.taken <= len(sentence)


@given(st.lists(st.sampled_from(["a b. ", "C d! ", "e", "F ", "'g. ", "漢。"])), st.integers(1, 40))
def test_sentences_by_windows(pieces, window):
    """No character is lost, whatever the windows; one that holds all changes nothing."""
    import sentencex

    text = "".join(pieces)
    assert "".join(segment(text, "en", window)) == text
    assert segment(text, "en", 1000) == (sentencex.segment("en", text) if text else [])


def test_sentences_are_those_of_the_whole():
    """Where no quotation is cut, sentences do not depend on the windows; long ones stay whole."""
    sentences = [f"The {'very ' * (number % 9)}old cat sat. " for number in range(60)]
    assert segment("".join(sentences), "en", 100) == sentences
    assert segment("cat " * 100, "en", 30) == ["cat " * 100]


def test_a_line_of_hyphens():
    """If the time grows with the square of the length, this takes a quarter of an hour."""
    text = "a- " * 100_000
    assert mend_hyphens([text], DropCounter()) == [text]


def test_many_abbreviations_in_a_row():
    """Joined at the end, and not one after the other, each a copy."""
    pieces = ["M. "] * 1000 + ["Dupont."]
    assert rejoin_titles(pieces, "fr") == ["".join(pieces)]


TAGS = {
    "en": True, "EN_us": True, "zh-Hant-TW": True, "zh-min-nan": True, "be-x-old": True,
    "de-CH-1996": True, "x-own": True, "i-klingon": True, "en-a-bbb-x-y": True, "und": True,
    "": False, "e": False, "en-": False, "-en": False, "en|": False, "en\n": False, "<b>": False,
    "en US": False, "en-toolongsub": False, "\x00": False, "éé": False, "ſſ": False, "en-a": False,
    "../x": False, "en" + "-abcde" * 20: False,
}  # fmt: skip


@pytest.mark.parametrize("tag", TAGS)
def test_language_tags(tag):
    assert languages.is_language_tag(tag) == TAGS[tag]
    if not TAGS[tag]:
        with pytest.raises(UserError, match="^--x: .* is not a language tag") as caught:
            languages.check_language_tag(tag, "--x")
        assert len(str(caught.value)) < 250
    else:
        assert languages.check_language_tag(tag, "--x") == tag


def test_a_record_with_no_language_tag(here, call):
    """A fault of its record, and of the pieces that continue it; counted, and the rest is read."""
    lines = [
        {"text": "A cat sat.", "lang": "e|n"},
        {"text": "It ran.", "continues": True},
        {"text": "A dog ran.", "lang": "de"},
    ]
    Path("a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    status, _ = call("create_documents", "--input=a.jsonl", *RECORDS, "--on_error=skip")
    manifest = load_manifest("out")
    assert status == cli.EXIT_SKIPPED and manifest.languages == {"de": 1}
    assert manifest.counters == {"read/unreadable_record": 1}


def test_every_number_of_ours_has_bounds():
    """So that a new flag is not forgotten: both ends of an integer, the lower end of a float."""
    unbounded = set()
    for binary in ("build_vocab create_documents create_pairs docstrings hold_out mine_negatives"
                   " prepare random_strings train_quality_classifier").split():  # fmt: skip
        module = importlib.import_module(f"data_prep.{binary}")
        with flagsaver.flagsaver():
            before = set(flags.FLAGS)
            module.define_flags()
            for name in set(flags.FLAGS) - before - {"seed"}:
                is_integer = isinstance(flags.FLAGS[name].parser, flags.IntegerParser)
                is_number = is_integer or isinstance(flags.FLAGS[name].parser, flags.FloatParser)
                for value in ("-1000000000000000", "1000000000000000")[: is_number + is_integer]:
                    with contextlib.suppress(ValueError, flags.Error):
                        setattr(flags.FLAGS, name, flags.FLAGS[name].parser.parse(value))
                        unbounded.add(name)
    assert not unbounded


@pytest.mark.long
@pytest.mark.parametrize(
    ("binary", "values"),
    [("create_documents", []), ("prepare", ["deduplicate=near", "element_mb=0.000001"])],
)
def test_killed_before_a_change_of_the_file_system(tmp_path, vocabulary, binary, values):
    """Twenty times, from the first change to the last; the same command then writes the same."""
    vocabulary.save(tmp_path)
    write_text(tmp_path / "text")
    program = [sys.executable, "-m", "tests.hostile.killed_data_prep", str(tmp_path), binary, "20"]
    done = subprocess.run([*program, *values], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    result = json.loads(done.stdout)
    assert result["killed"] == 20 and result["left"] >= 10 and result["changes"] > 20
