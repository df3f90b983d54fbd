"""Flags that a dataclass defines: names, kinds, bounds, defaults and help are said once."""

import dataclasses
from typing import Annotated

import pytest
from absl import flags
from absl.testing import flagsaver

from official_cmlm import cli
from official_cmlm.common.errors import UserError
from official_cmlm.common.validation import Flag, OneOf, above, between


@dataclasses.dataclass(frozen=True)
class Reading:
    """How files are read.

    Attributes:
      test_columns: columns that are read, in
        order.
      test_most_bytes: size of a line, in MiB.
      keep: whether the other columns are read.
    """

    test_columns: tuple[str, ...] = ("text",)
    test_most_bytes: Annotated[int, between(1, 4 << 20), Flag("test_most_mb", 1 << 20)] = 3 << 20
    keep: Annotated[bool, Flag("test_keep_columns")] = False


@dataclasses.dataclass(frozen=True)
class PartReading(Reading):
    """How parts of files are read.

    Attributes:
      test_parts: numbers of the parts.
      test_forms: text: lines; table: rows.
    """

    test_parts: tuple[Annotated[int, between(0, 9)], ...] = (1, 2)
    test_forms: tuple[Annotated[str, OneOf(("text", "table"))], ...] = ("text",)


@dataclasses.dataclass(frozen=True)
class Choice:
    """A choice among texts.

    Attributes:
      test_input: the file.
      test_least, test_most: bounds of the rank
        of a text.
      test_score: least cosine, or None for any.
      test_share: share of the texts.
      test_sampling: `top` or `random`.
      test_is_dry: whether nothing is written.
      test_files: further files.
      reading: see the class.
    """

    test_input: str
    test_least: Annotated[int, between(0, 9)] = 0
    test_most: Annotated[int, between(0, 9)] = 5
    test_score: Annotated[float, between(-1, 1)] | None = None
    test_share: Annotated[float, above(0)] = 1.0
    test_sampling: Annotated[str, OneOf(("top", "random"))] = "top"
    test_is_dry: bool = False
    test_files: Annotated[tuple[str, ...], Flag(repeats=True, alias="test_paths")] = ()
    reading: PartReading = dataclasses.field(default_factory=PartReading)

    def __post_init__(self):
        if self.test_most < self.test_least:
            raise UserError("--test_most: below --test_least")


@pytest.fixture
def parse():
    """Returns a function from a command line to the flags; they are removed after the test."""
    before = set(flags.FLAGS)
    cli.define(Choice, test_most=7)

    def parse(*arguments):
        flags.FLAGS(["program", *arguments])
        return cli.read(Choice)

    with flagsaver.flagsaver():
        yield parse
    for name in set(flags.FLAGS) - before:
        delattr(flags.FLAGS, name)


def test_defaults_are_those_of_the_dataclass_and_of_the_caller(parse):
    assert parse("--test_input=a") == Choice("a", test_most=7)


def test_values_have_the_types_of_their_fields(parse):
    arguments = ["--test_input=a", "--test_score=0.5", "--test_columns=a,b", "--test_is_dry"]
    expected = Choice("a", 0, 7, 0.5, test_is_dry=True, reading=PartReading(("a", "b")))
    assert parse(*arguments, "--test_sampling=top") == expected
    assert parse("--test_input=a", "--test_parts=3,4").reading.test_parts == (3, 4)
    assert parse("--test_input=a", "--test_forms=table,text").reading.test_forms[0] == "table"


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--test_least=10", r"test_least=10: must be in \[0, 9\]"),
        ("--test_share=0", "test_share=0.0: must be above 0"),
        ("--test_score=nan", r"test_score=nan: must be in \[-1, 1\]"),
        ("--test_sampling=all", "value should be one of <top|random>"),
        ("--test_parts=1,10", r"test_parts=\[1, 10\]: must be in \[0, 9\]"),
        ("--test_parts=1,x", "give whole numbers, such as 64,128; got 1,x"),
        ("--test_forms=text,lines", "must be one of text, table"),
        (f"--test_least={10**400}", "must fit into 64 bits"),
        ("--test_most_mb=5", r"test_most_mb=5.0: must be in \(0, 4.0\]"),
        ("--test_most_mb=0", r"test_most_mb=0.0: must be in \(0, 4.0\]"),
    ],
)
def test_values_out_of_bounds_are_refused(parse, argument, message):
    with pytest.raises(flags.Error, match=message):
        parse("--test_input=a", argument)


def test_a_flag_may_have_another_name_and_unit_than_its_field(parse):
    reading = parse("--test_input=a", "--test_most_mb=0.5", "--test_keep_columns").reading
    assert (reading.test_most_bytes, reading.keep) == (1 << 19, True)
    assert parse("--test_input=a", "--test_most_mb=1e-9").reading.test_most_bytes == 1
    assert (
        parse("--test_input=a", "--test_most_mb=3", "--notest_keep_columns").reading
        == PartReading()
    )


def test_a_list_that_is_given_twice_is_refused(parse):
    """Only the last value would count, in silence."""
    with pytest.raises(flags.Error, match="test_columns.* already defined as .'a'"):
        parse("--test_input=a", "--test_columns=a", "--test_columns=b")


def test_a_flag_may_be_repeated_and_have_a_second_name(parse):
    arguments = ["--test_input=a", "--test_files=a,b", "--test_paths=c"]
    assert parse(*arguments).test_files == ("a,b", "c")


def test_a_flag_without_a_default_is_required(parse):
    with pytest.raises(flags.Error, match="test_input"):
        parse()


def test_a_dataclass_checks_its_fields_together(parse):
    with pytest.raises(UserError, match="below --test_least"):
        parse("--test_input=a", "--test_least=8")


def test_help_is_the_text_of_the_attributes(parse):
    """An entry may name several fields and run over several lines."""
    assert flags.FLAGS["test_most"].help == "Bounds of the rank of a text. Must be in [0, 9]."
    assert flags.FLAGS["test_columns"].help == "Columns that are read, in order."
    assert flags.FLAGS["test_input"].help == "The file. Required."
    # A value that the flag takes stays as it is written.
    assert flags.FLAGS["test_forms"].help == "text: lines; table: rows."
    # Absl's own additions are left out.
    assert flags.FLAGS["test_files"].help == "Further files."
    assert flags.FLAGS["test_sampling"].help == "`top` or `random`. One of top, random."
