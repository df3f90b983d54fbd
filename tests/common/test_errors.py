"""Messages of errors: one line whatever they quote."""

import copy

import pytest

from official_cmlm.common.errors import Stopped, UserError, guard_reading


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a.txt: no such file; check --input", "a.txt: no such file; check --input"),
        ("Straße, 猫; — …", "Straße, 猫; — …"),
        ("two\nlines\r\n and\ta tab", "two lines and a tab"),
        ("a\x1b[31mred\x07", r"a\x1b[31mred\x07"),
        ("\u202eback\u2066", r"\u202eback\u2066"),
        ("\ud800 alone", r"\ud800 alone"),
        ("a\r\nb\u2028c \x1b[2J\udcff", r"a b c \x1b[2J\udcff"),
        ("", ""),
    ],
)
def test_one_line(text, message):
    assert str(UserError(text)) == message
    str(UserError(text)).encode()


def test_long_messages_keep_both_ends():
    """The file is named at the beginning, the remedy at the end."""
    message = str(UserError(f"own.yaml: {'x' * 10**6}; write it again"))
    assert message.startswith("own.yaml: xxx") and message.endswith("xxx; write it again")
    assert len(message) < 850


def test_it_passes_between_processes():
    """As workers of a pool raise it; copying rebuilds it the same way."""
    error = copy.copy(UserError("a; b"))
    assert type(error) is UserError and str(error) == "a; b"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (KeyError("low"), "a/b.json: damaged (KeyError: 'low'); mend it"),
        (ValueError("two\nlines"), "a/b.json: damaged (two lines); mend it"),
        (
            OSError(5, "Input/output error"),
            "a/b.json: cannot be read (Input/output error); mend it",
        ),
        (UserError("width is 0"), "a/b.json: width is 0"),
        (UserError("a/other.json: width is 0"), "a/other.json: width is 0"),
    ],
)
def test_whatever_fails_while_others_files_are_read_names_the_file(error, message):
    with pytest.raises(UserError) as caught, guard_reading("a/b.json", "mend it"):
        raise error
    assert str(caught.value) == message
    assert caught.value is error or caught.value.__cause__ is error


def test_other_exceptions_pass_the_boundary():
    class MissingData(UserError):
        """A subclass with a meaning of its own."""

    for error in (Stopped("resume it"), MissingData("width is 0"), KeyboardInterrupt()):
        with pytest.raises(type(error)) as caught, guard_reading("a/b.json"):
            raise error
        assert caught.value is error
