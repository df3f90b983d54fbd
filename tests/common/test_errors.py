"""Messages of errors: one line whatever they quote."""

import copy

import pytest

from official_cmlm.common.errors import UserError


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
