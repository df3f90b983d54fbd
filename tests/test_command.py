"""The command `cmlm`: one table of sub-commands, short ways to give flags, instant help."""

import subprocess
import sys
import tomllib

import pytest

from official_cmlm import command
from tests.binaries import BINARIES, ROOT, call, call_program, flags_of

# Ends with the modules that a call imports beside Python's own.
_HELP = """
import sys
sys.argv = ["cmlm", *sys.argv[1:]]
from official_cmlm import command
command.main()
print(*{name.partition(".")[0] for name in sys.modules} - set(sys.stdlib_module_names))
"""


def get_flags(name):
    """Returns the flags of a sub-command, `--to` among them."""
    flag_values = flags_of(command._import_binary(command.COMMANDS[name].module).__name__)
    command.define_to(command.COMMANDS[name], flag_values)
    return flag_values


def values_of(name, *arguments):
    """Returns the flags' values that a command line of a sub-command gives its binary."""
    flag_values = get_flags(name)
    rest = flag_values(
        ["cmlm", *command._convert_to_flags(command.COMMANDS[name], arguments, flag_values)]
    )
    return flag_values.flag_values_dict(), rest[1:]


def test_table_has_every_binary_once():
    binaries = {name for name in BINARIES if not name.startswith("benchmarks.")}
    modules = [row.module.removesuffix(".__main__") for row in command.COMMANDS.values()]
    assert sorted(modules) == sorted(name.removeprefix("official_cmlm.") for name in binaries)


@pytest.mark.parametrize("name", command.COMMANDS)
def test_rows_name_flags_of_their_binaries(name):
    row, flag_values = command.COMMANDS[name], get_flags(name)
    named = [*row.arguments.replace("*", "").split(), *filter(None, [row.to])]
    named += [default.removeprefix("--").partition("=")[0] for default in row.defaults]
    assert set(named) <= set(flag_values)


def test_every_command_that_writes_takes_to():
    """Exporters take a format by it; the others answer on standard output or by HTTP."""
    without = {name for name in command.COMMANDS if "to" not in get_flags(name)}
    exports = {name for name in command.COMMANDS if name.startswith("export-")}
    assert without == exports | {"compare", "info", "search", "serve", "show-view"}


def test_help_lists_the_commands_and_imports_nothing_heavy():
    done = subprocess.run(
        [sys.executable, "-c", _HELP, "--help"], cwd=ROOT, capture_output=True, text=True
    )
    *text, imported = done.stdout.splitlines()
    listed = {line.split()[0] for line in text if line.startswith("  ")}
    exports = {name for name in command.COMMANDS if name.startswith("export-")}
    assert listed == {*command.COMMANDS, "export"} - exports
    assert {"absl", "numpy", "yaml", "tensorflow"}.isdisjoint(imported.split())


def test_version_is_that_of_the_project(capsys, monkeypatch):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    monkeypatch.setattr(sys, "argv", ["cmlm", "--version"])
    command.main()
    assert capsys.readouterr().out == f"cmlm {project['version']}\n"


def test_help_of_a_sub_command_is_that_of_its_binary():
    """Its positional arguments come first; flags that another module defines are there too."""
    program = [sys.executable, "-m", "official_cmlm.command", "export", "--to=onnx", "--help"]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True)
    # The status is that of absl's `--help`.
    assert (done.returncode, done.stderr) == (1, "")
    text = done.stdout
    assert text.startswith("usage: cmlm export-onnx MODEL [--flags]\n\nExports an encoder for")
    assert all(f"  --{name}:" in text for name in ("export_dir", "model_dir", "precisions"))
    assert "--verbosity" not in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trian"], "cmlm has no command 'trian'; did you mean train? cmlm --help lists them"),
        (["zzz"], "cmlm has no command 'zzz'; cmlm --help lists them"),
        (["export", "m"], "--to is missing; give one of tfhub, onnx, litert, "),
        (["export", "m", "--to=onyx"], "--to=onyx: give one of tfhub, onnx, litert, "),
        (["serve", "m", "n"], "unexpected argument 'n'; flags start with --"),
        (["train", "x", "--dta=y"], "Unknown command line flag 'dta'. Did you mean: data ?"),
        (["serve"], "cmlm serve needs an encoder, e.g. --model=mini-en; see --help"),
        (["export", "--to=onnx"], "cmlm export-onnx needs an encoder, e.g. --model=mini-en; see"),
        (["embed"], "cmlm embed needs --input; see --help"),
        (
            ["classify", "t", "--to=x"],
            "cmlm classify needs a classifier that `cmlm adapt` made, e.g.",
        ),
    ],
)
def test_mistakes_are_one_line(arguments, message, capsys, monkeypatch):
    monkeypatch.setattr(sys.modules["__main__"], "__doc__", "")
    status = call_program(command.main, "cmlm", *arguments)
    # Python prints a message that ends a program, with the status 1.
    printed = capsys.readouterr().err + ("" if status == 1 else status)
    (line,) = printed.splitlines()
    assert line.startswith(f"error: {message}")


def test_training_in_one_line():
    values, rest = values_of("train", "cmlm/tiny", "--data", "records", "--to", "model")
    assert not rest
    assert (values["experiment"], values["data"], values["model_dir"], values["mode"]) == (
        "cmlm/tiny", "records", "model", "train"
    )  # fmt: skip
    values, _ = values_of("train", "--mode=eval", "--to=model", "cmlm/tiny")
    assert (values["experiment"], values["mode"]) == ("cmlm/tiny", "eval")


def test_positional_arguments_are_values_of_flags():
    """Files of one flag are joined; what is left over is refused by the binary."""
    values, _ = values_of("embed", "a.csv", "--overwrite", "b.csv", "--to=v", "--model=m")
    assert (values["input"], values["to"], values["overwrite"]) == (["a.csv", "b.csv"], "v", 1)
    assert values_of("serve", "m", "--port", "0", "n")[1] == ["n"]
    assert values_of("serve", "--host=h", "--", "-m")[0]["model"] == "-m"
    assert values_of("search", "-", "a question")[0]["index"] == "-"


@pytest.mark.parametrize("name", ["index", "adapt"])
def test_a_file_may_have_a_comma_in_its_name(name, tmp_path):
    file = tmp_path / 'keys, "boxes".txt'
    file.touch()
    values, _ = values_of(name, str(file), "a,b", "--to=x", "--model=m")
    assert values["input"] == [str(file), "a", "b"]


def test_results_stand_beside_the_encoder_unless_named(tmp_path):
    """A name that is not a path gives its last part to a folder of the current one."""
    (tmp_path / "mine").mkdir()
    values, _ = values_of("export-onnx", f"{tmp_path}/mine/")
    assert values["export_dir"] == f"{tmp_path}/mine_onnx"
    assert values_of("evaluate", "org/a b")[0]["output_dir"] == "a_b_results"
    assert values_of("evaluate", "mine", "--to=r")[0]["output_dir"] == "r"
    assert values_of("evaluate", "--encoder=mine")[0]["output_dir"] is None


def test_data_flag_names_the_folder_of_the_records(tmp_path, capsys):
    """It wins over --params_override, and is refused where the folder is not there."""
    from experiments import registry

    override = "task.train_data.input_path=old,trainer.train_steps=7"
    config = registry.load("cmlm/tiny", params_override=override, data="new")
    assert (config.task.train_data.input_path, config.trainer.train_steps) == ("new", 7)
    arguments = ["--experiment=cmlm/tiny", f"--data={tmp_path}/none", f"--model_dir={tmp_path}/m"]
    assert call("experiments.train", "--mode=train", *arguments) == 1
    assert f"{tmp_path}/none" in capsys.readouterr().err
