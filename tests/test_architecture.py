"""Rules that hold over all source files: who may import whom, and what nobody may use."""

import ast
import functools
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("official_cmlm", "data_prep", "experiments", "export", "benchmarks")
TOP_FOLDERS = (*PACKAGES[1:], "examples")
# Folders that the wheel installs below `official_cmlm`, so that their modules have two names.
INSTALLED_FOLDERS = ("data_prep", "experiments", "export")

# (file, rule) -> reason. A new line here is a decision, not a way to make the test pass.
EXCEPTIONS: dict[tuple[str, str], str] = {
    (
        "official_cmlm/evaluation/data/pickled_arrays.py",
        "forbidden",
    ): "its unpickler resolves only the names of NumPy's arrays",
    (
        "tests/evaluation/data/test_pickled_arrays.py",
        "forbidden",
    ): "writes pickles for that unpickler, and reads none by itself",
    (
        "experiments/demo/search.py",
        "starts without TensorFlow",
    ): "a stand-alone program as any TF-Hub user would write it",
    (
        "examples/classify_keras3.py",
        "forbidden",
    ): "shows how a Keras 3 program holds the exported model",
}

# Package -> packages from outside of the project that no file of it may import.
FOREIGN = {"official_cmlm.evaluation": ("tensorflow", "tf_keras", "official")}


@functools.cache
def _import_rows():
    """Yields the rows of the table "Folders" in WORKSPACE.md: (units, what they may import).

    A unit is a package or module, named by its path without `official_cmlm/` and suffix. In the
    last column "basics" stands for the units of the first row, "library" for everything in
    `official_cmlm/`, and "all" for the whole project.
    """
    section = (ROOT / "WORKSPACE.md").read_text(encoding="utf-8").split("## Folders")[1]
    lines = section.split("\n## ")[0].splitlines()
    cells = [line.strip("|").split("|") for line in lines if line.startswith("| `")]
    rows = [(re.findall("`([^`]+)`", row[0]), row[-1].replace("`", " ").split()) for row in cells]
    basics = set(rows[0][0])
    return [(units, set(to) - {"–"} | (basics if "basics" in to else set())) for units, to in rows]


def _import_table():
    """Returns unit -> the units that it may import."""
    return {unit: allowed for units, allowed in _import_rows() for unit in units}


def _unit(name, table):
    """Returns the longest unit of the table that holds a module or name; None outside of all."""
    path = name.removeprefix("official_cmlm.").replace(".", "/")
    while path and path not in table:
        path = path.rpartition("/")[0]
    return path or None


def _allowed(unit, target, table):
    """Whether the table lets a unit import another one."""
    allowed = table[unit]
    return (
        unit == target
        or "all" in allowed
        or ("library" in allowed and target not in TOP_FOLDERS)
        or any(_within_path(target, name) for name in allowed)
    )


def _within_path(unit, folder):
    return unit is not None and f"{unit}/".startswith(f"{folder}/")


def _files(*packages):
    """Returns the Python files of the packages, or of the whole repository."""
    folders = [ROOT.joinpath(*package.split(".")) for package in packages] or [
        *(ROOT / package for package in PACKAGES),
        ROOT / "examples",
        ROOT / "tests",
    ]
    return [path for folder in folders for path in sorted(folder.rglob("*.py"))]


def _name(path):
    return path.relative_to(ROOT).as_posix()


def _tree(path):
    """Returns a file's syntax tree, in which relative imports have their names in a checkout."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return _absolute(tree, path.relative_to(ROOT).parent.parts)


def _absolute(tree, package):
    """Gives the relative imports of a module in `package`, a tuple of names, their full names.

    One that leaves the top-level folder becomes an import of a package called `OUTSIDE`: Python
    refuses it in a checkout, and in an installed project it would be another module.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1] or ("OUTSIDE",)
            node.module = ".".join([*base, *filter(None, [node.module])])
            node.level = 0
    return tree


def _imports(tree):
    """Yields the full names of all that a file imports, inside functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@functools.cache
def _imports_of(path):
    """Returns the full names of all that a file imports; each file is parsed once for all tests."""
    return tuple(_imports(_tree(path)))


def _within(name, *packages):
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def _violations(rule, found):
    """Returns violations of a rule without exceptions; an exception that nothing needs is one."""
    found = set(found)
    excepted = {name for name, of in EXCEPTIONS if of == rule}
    stale = {(name, "is excepted for nothing") for name in excepted - {f for f, _ in found}}
    return sorted((f, what) for f, what in found if f not in excepted) + sorted(stale)


def _imported(package):
    """Returns (file, imported name) of a whole package."""
    return [(_name(path), name) for path in _files(package) for name in _imports_of(path)]


def _project_imports():
    """Yields (file, its unit, imported name, its unit) of all imports within the project."""
    table = _import_table()
    return [
        (_name(path), _unit(_module(path), table), name, _unit(name, table))
        for path in _files(*TOP_FOLDERS, "official_cmlm")
        for name in _imports_of(path)
        if _within(name, "official_cmlm", *TOP_FOLDERS, "tests")
    ]


def test_every_import_is_in_the_table():
    """WORKSPACE.md says of each package which others it may import; here the files are asked."""
    table = _import_table()
    found = [
        (path, name)
        for path, unit, name, target in _project_imports()
        if unit is None or target is None or not _allowed(unit, target, table)
    ]
    assert found == []


def test_the_table_has_no_stale_entries():
    """Every unit exists, and some file of a row makes each import that the row allows."""
    rows = _import_rows()
    made = [(unit, target) for _, unit, _, target in _project_imports()]
    units = {
        _unit(_module(path), _import_table()) for path in _files(*TOP_FOLDERS, "official_cmlm")
    }
    assert {unit for row, _ in rows for unit in row} <= units
    shared = {"all", "library", "basics", *rows[0][0]}
    stale = [
        (row, name)
        for row, allowed in rows
        for name in allowed - shared
        if not any(unit in row and _within_path(target, name) for unit, target in made)
    ]
    assert stale == []


@pytest.mark.parametrize("package", FOREIGN)
def test_package_is_free_of(package):
    """Evaluation takes anything that encodes, so it knows no framework."""
    found = [(path, name) for path, name in _imported(package) if _within(name, *FOREIGN[package])]
    assert _violations(package, found) == []


@pytest.mark.parametrize(
    ("statement", "imported"),
    [
        ("from . import x", "a.b.x"),
        ("from .c import x", "a.b.c.x"),
        ("from .. import x", "a.x"),
        ("from ..c.d import x", "a.c.d.x"),
        ("def f(): from ... import x", "OUTSIDE.x"),
        ("from ...c import x", "OUTSIDE.c.x"),
        ("from c import x", "c.x"),
    ],
)
def test_relative_imports_are_resolved(statement, imported):
    """As Python does it for a module of the package `a.b`."""
    assert list(_imports(_absolute(ast.parse(statement), ("a", "b")))) == [imported]


def test_no_import_leaves_its_folder():
    """Python would refuse such an import in a checkout."""
    found = [(_name(p), n) for p in _files() for n in _imports_of(p) if _within(n, "OUTSIDE")]
    assert found == []


@pytest.mark.parametrize("folder", INSTALLED_FOLDERS)
def test_installed_folders_import_themselves_relatively(folder):
    """Their own full name is `data_prep.x` in a checkout and `official_cmlm.data_prep.x` installed.

    So no import may name either; where the project is installed, the first would even find
    the folder of that name where the user happens to be.
    """
    both = [*INSTALLED_FOLDERS, *(f"official_cmlm.{name}" for name in INSTALLED_FOLDERS)]
    found = [
        (_name(path), name)
        for path in _files(folder)
        for name in _imports(ast.parse(path.read_text(encoding="utf-8")))
        if _within(name, *both)
    ]
    assert found == []


def _dotted(node):
    """`a.b.c` of nested attributes, or nothing."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (base := _dotted(node.value)):
        return f"{base}.{node.attr}"
    return ""


def test_objectives_know_no_file_format():
    """Objectives get features; they neither open files nor parse records."""
    found = [
        (_name(path), _dotted(node))
        for path in _files("official_cmlm.objectives")
        for node in ast.walk(_tree(path))
        if _within(_dotted(node), "tf.io", "tensorflow.io", "tf.data.TFRecordDataset", "open")
    ]
    assert _violations("file formats", found) == []


def test_jax_is_imported_in_two_files():
    """It is an extra; who does without it never meets it. A benchmark asks libtpu by it."""
    found = [
        _name(path)
        for path in _files(*PACKAGES)
        if any(_within(name, "jax", "jaxlib") for name in _imports_of(path))
    ]
    assert sorted(found) == [
        "benchmarks/accelerators/compiling.py",
        "official_cmlm/training/jax_loop.py",
    ]


def _forbidden(tree):
    """Yields uses of Keras 3 and of functions that run or unpickle foreign code."""
    safe_loaders = {"SafeLoader", "yaml.SafeLoader", "yaml.CSafeLoader"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and any(_dotted(b) in safe_loaders for b in node.bases):
            safe_loaders.add(node.name)
    for imported in _imports(tree):
        if _within(imported, "keras", "tensorflow.keras", "pickle", "cPickle", "dill", "marshal"):
            yield f"imports {imported}"
    for node in ast.walk(tree):
        name = _dotted(node)
        if name in ("tf.keras", "tensorflow.keras", "tf.compat.v1.keras"):
            yield name
        if not isinstance(node, ast.Call):
            continue
        called = _dotted(node.func)
        if called in ("eval", "exec", "builtins.eval", "builtins.exec"):
            yield f"{called}()"
        if called in ("yaml.load", "yaml.load_all", "yaml.unsafe_load", "yaml.full_load"):
            loaders = [k.value for k in node.keywords if k.arg == "Loader"] + node.args[1:2]
            if not (loaders and _dotted(loaders[0]) in safe_loaders):
                yield f"{called} without a safe loader"


def test_nothing_forbidden_is_used():
    """No Keras 3 (Model Garden needs tf_keras), no pickle, eval, exec or unsafe YAML."""
    # A file without any of these words holds nothing of it; most need not be parsed again.
    words = re.compile(r"\b(keras|pickle|cPickle|dill|marshal|eval|exec|yaml)\b")
    found = [
        (_name(path), what)
        for path in _files()
        if words.search(path.read_text(encoding="utf-8"))
        for what in _forbidden(_tree(path))
    ]
    assert _violations("forbidden", found) == []


FORBIDDEN = """\
import keras
from keras import layers
from tensorflow import keras
x = tf.keras.layers.Dense(1)
import pickle
eval("1")
yaml.load(text)
yaml.load(text, Loader=yaml.Loader)
class L(yaml.Loader): yaml.load(text, Loader=L)
"""
HARMLESS = """\
"Not tf.keras, and no eval(x)."
import tf_keras
yaml.safe_load(text)
class L(yaml.SafeLoader): yaml.load(text, Loader=L)
model.eval()
"""


def test_forbidden_code_is_seen():
    """The check above sees what is forbidden and blames nothing else."""
    unseen = [code for code in FORBIDDEN.splitlines() if not list(_forbidden(ast.parse(code)))]
    blamed = [code for code in HARMLESS.splitlines() if list(_forbidden(ast.parse(code)))]
    assert (unseen, blamed) == ([], [])


def _module(path):
    """Returns the name of the module that a file is, or of the package that it begins."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def _import_cycles(imports):
    """Cycles of a graph {module: names that it imports}; a name is the module that holds it."""
    graph = {
        module: {found for name in names if (found := _holder(name, imports)) and found != module}
        for module, names in imports.items()
    }
    # A module that imports none of the rest is not in a cycle.
    while free := [module for module, to in graph.items() if not to & graph.keys()]:
        for module in free:
            del graph[module]
    return sorted(graph)


def _holder(name, modules):
    """Returns the one of `modules` that `name` is, or that defines it; None without one."""
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name


@pytest.mark.parametrize("package", PACKAGES)
def test_no_import_cycles(package):
    """Neither at the top of files nor inside functions."""
    imports = {_module(path): list(_imports_of(path)) for path in _files(package)}
    assert _import_cycles(imports) == []


def test_packages_of_data_prep_have_no_cycles():
    """Packages of data preparation depend on each other in one direction, as modules do.

    A module outside of packages counts as a package of its own.
    """
    imports = {}
    for path in _files("data_prep"):
        package = ".".join(_module(path).split(".")[:2])
        imports.setdefault(package, []).extend(_imports(_tree(path)))
    assert _import_cycles(imports) == []


def test_import_cycles_are_seen():
    """Over several files, and without what only imports a cycle's members from outside."""
    imports = {"p": [], "p.a": ["p.b.x"], "p.b": ["p.c"], "p.c": ["p.a.y"], "p.d": ["os"]}
    assert _import_cycles(imports) == ["p.a", "p.b", "p.c"]
    assert _import_cycles(imports | {"p.c": ["p.d"]}) == []


def _binaries():
    """Files that are run with `python -m`: module name -> file."""
    return {
        _name(path).removesuffix(".py").replace("/", "."): _name(path)
        for path in _files(*PACKAGES)
        if "__main__" in path.read_text(encoding="utf-8")
        and any(
            isinstance(node, ast.If) and "__main__" in ast.unparse(node.test)
            for node in _tree(path).body
        )
    }


# Imports the modules of its arguments where TensorFlow cannot be had, defines the flags of
# binaries, and prints the modules that ask for TensorFlow.
_IMPORT_WITHOUT_TENSORFLOW = """
import importlib, sys
from tests.binaries import flags_of

class Blocker:
    asked = False

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("tensorflow", "tf_keras", "official"):
            self.asked = True
            raise ImportError(name)

blocker = Blocker()
sys.meta_path.insert(0, blocker)
for name in sys.argv[1:]:
    blocker.asked = False
    try:
        if hasattr(importlib.import_module(name), "define_flags"):
            flags_of(name)
    except ImportError:
        if not blocker.asked:
            raise
    if blocker.asked:
        print(name)
"""


def _need_tensorflow(*modules):
    """Returns the modules whose import, in one fresh process, asks for TensorFlow."""
    command = [sys.executable, "-c", _IMPORT_WITHOUT_TENSORFLOW, *modules]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_binaries_start_without_tensorflow():
    """`--help` and mistakes in flags answer at once: TensorFlow is imported when it is needed."""
    binaries = _binaries()
    assert {"data_prep.create_documents", "experiments.train"} <= set(binaries)
    found = [(binaries[name], "imports TensorFlow") for name in _need_tensorflow(*binaries)]
    assert _violations("starts without TensorFlow", found) == []


def test_package_is_imported_without_tensorflow():
    """All that `encode` needs but the backend; evaluation protocols and search too."""
    modules = [
        "official_cmlm",
        "official_cmlm.sentence_encoder",
        "official_cmlm.backends.onnx",
        "official_cmlm.backends.auto",
        "official_cmlm.checkpoints.encoder_directory",
        "official_cmlm.checkpoints.huggingface",
        "official_cmlm.evaluation.metrics.nearest",
        "official_cmlm.search",
    ]
    backend = "official_cmlm.backends.tensorflow"
    assert _need_tensorflow(*modules, backend) == [backend]
