"""Options from the command line: lists with commas."""

import pytest

from official_cmlm.errors import UserError
from official_cmlm.evaluation import suites
from official_cmlm.evaluation.report.driver import parse_options


def _option(setting):
    name, _, rest = setting.partition(".")
    return getattr(parse_options([name], [setting])[name], rest.partition("=")[0])


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("tatoeba.languages=deu,fra", ["deu", "fra"]),
        ("tatoeba.languages=deu, fra ", ["deu", "fra"]),
        ("tatoeba.languages=[deu, fra]", ["deu", "fra"]),
        ("tatoeba.languages=deu", ["deu"]),
        ("senteval.tasks=STS-B,SICK-R", ["STS-B", "SICK-R"]),
        ("amazon.grid=0.1,10", [0.1, 10]),
        ("amazon.grid=1", [1]),
        ("language_bias.split=dev,test", "dev,test"),
    ],
)
def test_items_with_commas_are_a_list(setting, value):
    """Where the default is a list; a single item is a list of one, numbers are numbers."""
    assert _option(setting) == value


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("tatoeba.languages=deu,,fra", "an item of 'deu,,fra' is empty"),
        ("tatoeba.languages=no", "tatoeba: languages[0] must be str, got False; quote it"),
        ("tatoeba.languages=[de, no]", "languages[1] must be str, got False; quote it"),
        ("tatoeba.languages=deu,deu", "has a repeated item"),
        ("tatoeba.languages={a: 1}", "tatoeba: languages must be a list, got"),
        ("amazon.grid=0.1,x", "amazon: grid[1] must be a number, got 'x'"),
        ("amazon.grid=0.1,nan", "amazon: grid[1] must be above 0, got nan"),
    ],
)
def test_lists_that_cannot_be(setting, message):
    """One line that says what to write."""
    with pytest.raises(UserError) as error:
        _option(setting)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_values_of_python_stay():
    """A list is taken as it is."""
    assert suites.options("tatoeba", {"languages": ["a,b"]}).languages == ["a,b"]
