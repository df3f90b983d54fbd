"""The files at the root that say the same as pyproject.toml, and the workflow."""

import re
import tomllib

import yaml

import official_cmlm
from tests.binaries import ROOT

FILE = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = FILE["project"]


def _read_yaml(name):
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def test_the_citation_names_the_project_and_no_second_version():
    citation = _read_yaml("CITATION.cff")
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert citation["cff-version"] == "1.2.0" and "version" not in citation
    assert citation["license"] == PROJECT["license"]
    assert citation["authors"] == PROJECT["authors"]


def test_the_newest_section_of_the_changelog_is_of_this_version():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (\S+)", text, re.MULTILINE)[0] == PROJECT["version"]


def test_the_workflow_runs_all_checks_on_every_supported_python():
    jobs = _read_yaml(".github/workflows/ci.yml")["jobs"]
    job, (_, setup, _) = jobs["test"], jobs["base_install"]["steps"]
    prefix = "Programming Language :: Python :: "
    supported = [c.removeprefix(prefix) for c in PROJECT["classifiers"] if c.startswith(prefix)]
    assert [*job["strategy"]["matrix"]["python"], setup["with"]["python-version"]] == supported
    first, last = (int(version.removeprefix("3.")) for version in (supported[0], supported[-1]))
    assert PROJECT["requires-python"] == f">=3.{first},<3.{last + 1}"
    (command,) = (step["run"] for step in job["steps"] if "run" in step)
    assert (ROOT / command).stat().st_mode & 0o100


def test_types_are_checked_where_public_names_are_defined():
    modules = {f"official_cmlm/{m.replace('.', '/')}.py" for m in official_cmlm._MODULES.values()}
    assert modules <= set(FILE["tool"]["pyrefly"]["project-includes"])
