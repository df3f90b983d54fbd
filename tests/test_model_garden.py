"""Tests that what is used of Model Garden needs none of the packages that the lock leaves out."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

_ROOT = Path(__file__).parent.parent
# The modules of packages that have another name on PyPI.
_MODULES = {
    "google-api-python-client": "googleapiclient",
    "libclang": "clang",
    "opencv-python-headless": "cv2",
    "py-cpuinfo": "cpuinfo",
}
_REFUSAL = """
import sys

class Refusal:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in sys.argv[1:]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refusal())
"""


def test_imports_of_model_garden_need_no_package_left_out():
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text())
    overrides = project["tool"]["uv"]["override-dependencies"]
    packages = [line.split(";")[0] for line in overrides if "python_version < '3'" in line]
    modules = [_MODULES.get(name, name.replace("-", "_")) for name in packages]
    folders = ("official_cmlm", "data_prep", "experiments", "export")
    texts = [file.read_text() for name in folders for file in (_ROOT / name).rglob("*.py")]
    imports = re.findall(r"^ *(from official\.[\w.]+ import .+)", "\n".join(texts), re.MULTILINE)
    assert len(modules) > 10 and len(set(imports)) > 10
    command = [sys.executable, "-c", _REFUSAL + "\n".join(sorted(set(imports))), *modules]
    done = subprocess.run(command, capture_output=True, text=True)
    assert not done.returncode, done.stderr[-2000:]
