"""Rules that hold over all source files: who may import whom, and what nobody may use."""

import ast
import functools
import graphlib
import re
import subprocess
import sys

import pytest

import official_cmlm
from tests.binaries import BINARIES, PACKAGES, ROOT
from tests.source_files import files, imports_in, imports_of, name_of, tree_of, within

TOP_FOLDERS = (*(name for name in PACKAGES if name != "official_cmlm"), "examples")
# Folders that the wheel installs below `official_cmlm`, so that their modules have two names.
INSTALLED_FOLDERS = ("data_prep", "experiments", "export")

# File with forbidden code -> reason. A new line is a decision, not a way to make the test pass.
EXCEPTIONS = {
    "official_cmlm/evaluation/data/pickled_arrays.py": (
        "its unpickler resolves only the names of NumPy's arrays"
    ),
    "tests/evaluation/data/test_pickled_arrays.py": (
        "writes pickles for that unpickler, and reads none by itself"
    ),
    "examples/classify_keras3.py": "shows how a Keras 3 program holds the exported model",
}


@functools.cache
def _import_rows():
    """Yields the rows of the table "Folders" in WORKSPACE.md: (units, what they may import).

    A unit is a package or module, named by its path without `official_cmlm/` and suffix. In the
    last column "library" stands for everything in `official_cmlm/`.
    """
    section = (ROOT / "WORKSPACE.md").read_text(encoding="utf-8").split("## Folders")[1]
    lines = section.split("\n## ")[0].splitlines()
    cells = [line.strip("|").split("|") for line in lines if line.startswith("| `")]
    rows = [(re.findall("`([^`]+)`", row[0]), row[-1].replace("`", " ").split()) for row in cells]
    return [(units, set(to) - {"–"}) for units, to in rows]


def _import_table():
    """Returns unit -> the units that it may import."""
    return {unit: allowed for units, allowed in _import_rows() for unit in units}


def _unit(name, table):
    """Returns the longest unit of the table that holds a module or name; None outside of all."""
    if name.removeprefix("official_cmlm.") in official_cmlm.__all__:
        return "official_cmlm"
    return _holder(name.removeprefix("official_cmlm.").replace(".", "/"), table, "/")


def _holder(name, known, separator="."):
    """Returns the one of `known` that a name is, or that defines it; None without one."""
    while name and name not in known:
        name = name.rpartition(separator)[0]
    return name or None


def _is_allowed(unit, target, table):
    """Returns whether the table lets a unit import another one."""
    allowed = table[unit]
    return (
        unit == target
        or ("library" in allowed and target not in TOP_FOLDERS)
        or any(_within_path(target, name) for name in allowed)
    )


def _within_path(unit, folder):
    return unit is not None and f"{unit}/".startswith(f"{folder}/")


def _project_imports():
    """Yields (file, its unit, imported name, its unit) of all imports within the project."""
    table = _import_table()
    return [
        (name_of(path), _unit(_module(path), table), name, _unit(name, table))
        for path in files(*TOP_FOLDERS, "official_cmlm")
        for name in imports_of(path)
        if within(name, "official_cmlm", *TOP_FOLDERS, "tests")
    ]


def test_every_import_is_in_the_table():
    """WORKSPACE.md says of each package which others it may import; here the files are asked."""
    table = _import_table()
    faults = [
        (path, name)
        for path, unit, name, target in _project_imports()
        if unit is None or target is None or not _is_allowed(unit, target, table)
    ]
    assert faults == []


def test_the_table_has_no_stale_entries():
    """Every unit exists, and some file of a row makes each import that the row allows."""
    rows = _import_rows()
    made = [(unit, target) for _, unit, _, target in _project_imports()]
    units = {_unit(_module(path), _import_table()) for path in files(*TOP_FOLDERS, "official_cmlm")}
    assert {unit for row, _ in rows for unit in row} <= units
    stale = [
        (row, name)
        for row, allowed in rows
        for name in allowed - {"library"}
        if not any(unit in row and _within_path(target, name) for unit, target in made)
    ]
    assert stale == []


def test_evaluation_is_free_of_frameworks():
    """Evaluation takes anything that encodes, so it knows none."""
    faults = [
        (name_of(path), name)
        for path in files("official_cmlm.evaluation")
        for name in imports_of(path)
        if within(name, "tensorflow", "tf_keras", "official")
    ]
    assert faults == []


def test_no_import_leaves_its_folder():
    """Python would refuse such an import in a checkout."""
    faults = [(name_of(p), n) for p in files() for n in imports_of(p) if within(n, "OUTSIDE")]
    assert faults == []


@pytest.mark.parametrize("folder", INSTALLED_FOLDERS)
def test_installed_folders_import_themselves_relatively(folder):
    """Their own full name is `data_prep.x` in a checkout and `official_cmlm.data_prep.x` installed.

    So no import may name either; where the project is installed, the first would even find
    the folder of that name where the user happens to be.
    """
    both = [*INSTALLED_FOLDERS, *(f"official_cmlm.{name}" for name in INSTALLED_FOLDERS)]
    faults = [
        (name_of(path), name)
        for path in files(folder)
        for name in imports_in(ast.parse(path.read_text(encoding="utf-8")))
        if within(name, *both)
    ]
    assert faults == []


def _unparse(node):
    """`a.b.c` of nested attributes, or nothing."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (base := _unparse(node.value)):
        return f"{base}.{node.attr}"
    return ""


def test_objectives_know_no_file_format():
    """Objectives get features; they neither open files nor parse records."""
    faults = [
        (name_of(path), _unparse(node))
        for path in files("official_cmlm.objectives")
        for node in ast.walk(tree_of(path))
        if within(_unparse(node), "tf.io", "tensorflow.io", "tf.data.TFRecordDataset", "open")
    ]
    assert faults == []


def test_jax_is_imported_in_three_files():
    """It is an extra; who does without it never meets it. A benchmark asks compilers by it."""
    paths = [
        name_of(path)
        for path in files(*PACKAGES)
        if any(within(name, "jax", "jaxlib") for name in imports_of(path))
    ]
    assert sorted(paths) == [
        "benchmarks/accelerators/compiling.py",
        "experiments/run_lowered.py",
        "official_cmlm/training/jax_loop.py",
    ]


def _forbidden(tree):
    """Yields uses of Keras 3 and of functions that run or unpickle foreign code."""
    safe_loaders = {"SafeLoader", "yaml.SafeLoader", "yaml.CSafeLoader"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and any(_unparse(b) in safe_loaders for b in node.bases):
            safe_loaders.add(node.name)
    for imported in imports_in(tree):
        if within(imported, "keras", "tensorflow.keras", "pickle", "cPickle", "dill", "marshal"):
            yield f"imports {imported}"
    for node in ast.walk(tree):
        name = _unparse(node)
        if name in ("tf.keras", "tensorflow.keras", "tf.compat.v1.keras"):
            yield name
        if not isinstance(node, ast.Call):
            continue
        called = _unparse(node.func)
        if called in ("eval", "exec", "builtins.eval", "builtins.exec"):
            yield f"{called}()"
        if called in ("yaml.load", "yaml.load_all", "yaml.unsafe_load", "yaml.full_load"):
            loaders = [k.value for k in node.keywords if k.arg == "Loader"] + node.args[1:2]
            if not (loaders and _unparse(loaders[0]) in safe_loaders):
                yield f"{called} without a safe loader"


def test_nothing_forbidden_is_used():
    """No Keras 3 (Model Garden needs tf_keras), no pickle, eval, exec or unsafe YAML."""
    # A file without any of these words holds nothing of it; most need not be parsed again.
    words = re.compile(r"\b(keras|pickle|cPickle|dill|marshal|eval|exec|yaml)\b")
    uses = [
        (name_of(path), what)
        for path in files()
        if words.search(path.read_text(encoding="utf-8"))
        for what in _forbidden(tree_of(path))
    ]
    assert [(path, what) for path, what in uses if path not in EXCEPTIONS] == []
    assert EXCEPTIONS.keys() == EXCEPTIONS.keys() & {path for path, _ in uses}


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


def _import_cycle(imports):
    """Returns a cycle of {module: names that it imports}; a name is the module that holds it."""
    graph = {
        module: {
            holder for name in names if (holder := _holder(name, imports)) and holder != module
        }
        for module, names in imports.items()
    }
    assert any(graph.values())
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return error.args[1]
    return []


@pytest.mark.parametrize("package", PACKAGES)
def test_no_import_cycles(package):
    """Neither at the top of files nor inside functions."""
    assert _import_cycle({_module(path): imports_of(path) for path in files(package)}) == []


def test_packages_of_data_prep_have_no_cycles():
    """Packages of data preparation depend on each other in one direction, as modules do.

    A module outside of packages counts as a package of its own.
    """
    imports = {}
    for path in files("data_prep"):
        package = ".".join(_module(path).split(".")[:2])
        imports.setdefault(package, []).extend(imports_of(path))
    assert _import_cycle(imports) == []


# Imports the modules of its arguments where TensorFlow cannot be had, defines the flags of
# binaries, and prints the modules that ask for TensorFlow.
_IMPORT_WITHOUT_TENSORFLOW = """
import importlib, sys
from tests.binaries import BINARIES, flags_of

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
        flags_of(name) if name in BINARIES else importlib.import_module(name)
    except ImportError:
        if not blocker.asked:
            raise
    if blocker.asked:
        print(name)
"""


def test_tensorflow_is_imported_when_it_is_needed():
    """`--help` and mistakes in flags answer at once; so does all that `encode` needs but a backend.

    Evaluation protocols and search are imported without it too.
    """
    modules = [
        "official_cmlm",
        "official_cmlm.command",
        "official_cmlm.encoding.sentence_encoder",
        "official_cmlm.encoding.backends.onnx",
        "official_cmlm.encoding.backends.auto",
        "official_cmlm.checkpoints.encoder_directory",
        "official_cmlm.checkpoints.formats.huggingface",
        "official_cmlm.evaluation.metrics.nearest",
        "official_cmlm.search",
    ]
    # The first is a stand-alone program as any TF-Hub user would write it.
    needing = ["experiments.demo.search", "official_cmlm.encoding.backends.tensorflow"]
    command = [sys.executable, "-c", _IMPORT_WITHOUT_TENSORFLOW, *BINARIES, *modules, *needing]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == needing
