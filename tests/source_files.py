"""The source files of the project, and what each of them imports."""

import ast
import functools
import importlib.util

from tests.binaries import PACKAGES, ROOT


def files(*packages):
    """Returns the Python files of the packages, or of the whole repository."""
    folders = [ROOT.joinpath(*package.split(".")) for package in packages] or [
        *(ROOT / package for package in PACKAGES),
        ROOT / "examples",
        ROOT / "tests",
    ]
    return [path for folder in folders for path in sorted(folder.rglob("*.py"))]


def name_of(path):
    return path.relative_to(ROOT).as_posix()


def tree_of(path):
    """Returns a file's syntax tree, in which relative imports have their names in a checkout.

    One that leaves the top-level folder becomes an import of a package called `OUTSIDE`: Python
    refuses it in a checkout, and in an installed project it would be another module.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    package = ".".join(path.relative_to(ROOT).parent.parts)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            name = "." * node.level + (node.module or "")
            try:
                node.module = importlib.util.resolve_name(name, package)
            except ImportError:
                node.module = "OUTSIDE"
    return tree


def imports_in(tree):
    """Yields the full names of all that a file imports, inside functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@functools.cache
def imports_of(path):
    """Returns the full names of all that a file imports; each file is parsed once for all tests."""
    return tuple(imports_in(tree_of(path)))


def within(name, *packages):
    return any(name == package or name.startswith(f"{package}.") for package in packages)
