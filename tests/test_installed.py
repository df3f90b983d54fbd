"""The wheel: one package with all files, the command `cmlm`, used elsewhere."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from urllib.request import Request, urlopen

import numpy as np
import pytest

from official_cmlm.checkpoints.find_encoder import list_shipped
from tests.conftest import make_documents
from tests.docs.pages import blocks

ROOT = Path(__file__).parents[1]
FOLDERS = ("official_cmlm", "data_prep", "experiments", "export")


def run(*command, cwd, status=0):
    """Runs a program; returns its output, or fails with it."""
    environment_variables = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=environment_variables, capture_output=True, text=True
    )
    assert done.returncode == status, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Copies what is installed, as a build leaves files beside the sources."""
    folder = tmp_path_factory.mktemp("source")
    for name in FOLDERS:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, folder / name)
    return folder


def environment(folder, *options):
    """Makes a virtual environment; returns its Python and the folder of its packages."""
    run(sys.executable, "-m", "venv", *options, folder, cwd=folder.parent)
    python = folder / "bin" / "python"
    output = run(python, "-c", "import site; print(site.getsitepackages()[0])", cwd=folder)
    return python, Path(output[:-1])


@pytest.fixture(scope="module")
def wheel(source, tmp_path_factory):
    output = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "--no-index", "--no-deps", "--no-build-isolation"]
    run(*pip, f"--wheel-dir={output}", source, cwd=output)
    return next(output.glob("*.whl"))


@pytest.fixture(scope="module")
def scripts(wheel, tmp_path_factory):
    """Makes an environment with the wheel and the tests' packages; returns its scripts' folder."""
    folder = tmp_path_factory.mktemp("environment")
    python, site = environment(folder, "--without-pip")
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--no-index", "--no-deps"]
    run(*pip, wheel, cwd=folder)
    assert {path.name.partition("-")[0] for path in site.iterdir()} == {"official_cmlm"}
    # Behind the installed project. What `.pth` files there name, such as a checkout, is not added.
    (site / "packages.pth").write_text(f"{sysconfig.get_paths()['purelib']}\n")
    return folder / "bin"


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory):
    """Makes a user's folder, with packages named like the checkout's: they must not be imported."""
    folder = tmp_path_factory.mktemp("elsewhere")
    for name in FOLDERS[1:]:
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text("raise SystemExit('of the user')\n")
    return folder


def modules(folder, suffix):
    return {path.relative_to(ROOT).as_posix() for path in (ROOT / folder).rglob(f"*{suffix}")}


@pytest.mark.long
def test_the_wheel_holds_one_package_with_all_files(wheel):
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
        (top_level,) = [name for name in names if name.endswith("top_level.txt")]
        assert file.read(top_level) == b"official_cmlm\n"
    assert {"LICENSE", "NOTICE"} <= {name.partition("/licenses/")[2] for name in names}
    files = {name for name in names if not name.startswith("official_cmlm-0")}
    own = {f"official_cmlm/{name}" for folder in FOLDERS[1:] for name in modules(folder, ".py")}
    # Programs of the Makefile beside them, which are run in a checkout only.
    own -= {f"official_cmlm/{name}" for name in modules("experiments/shipped", ".py")}
    yaml = {f"official_cmlm/{name}" for name in modules("experiments", ".yaml")}
    page = {f"official_cmlm/{name}" for name in modules("export", ".html")}
    library = set().union(
        *(modules("official_cmlm", end) for end in (".py", ".json", ".html", ".typed"))
    )
    weights = modules("official_cmlm/weights", ".*") | {"official_cmlm/weights/NOTICE"}
    assert files == own | yaml | page | library | weights and len(yaml) > 30
    assert sum(name.endswith(".safetensors") for name in weights) == len(list_shipped())


@pytest.mark.long
def test_the_installed_project_is_imported_from_anywhere(scripts, elsewhere):
    """A user's own script imports it, and a binary finds its YAML files."""
    (elsewhere / "own.py").write_text(
        "import official_cmlm, official_cmlm.experiments as e\n"
        "print(official_cmlm.__file__, e.module_of('export.export_tfhub'), sep='\\n')"
    )
    path, module = run(scripts / "python", "own.py", cwd=elsewhere).splitlines()
    assert Path(path).is_relative_to(scripts.parent)
    assert module == "official_cmlm.export.export_tfhub"
    listed = run(scripts / "cmlm", "train", "?", cwd=elsewhere)
    assert "cmlm/english_base" in listed


@pytest.mark.long
def test_help_of_the_command(scripts, elsewhere):
    """The help of a sub-command has all flags of its binary; absl's `--help` exits with 1."""
    assert [path.name for path in scripts.glob("cmlm*")] == ["cmlm"]
    assert "train EXPERIMENT" in run(scripts / "cmlm", "--help", cwd=elsewhere)
    for name in ("prepare", "train", "export-tfhub"):
        text = run(scripts / "cmlm", name, "--help", cwd=elsewhere, status=1)
        assert "flags:" in text and "\n  --" in text


TINY = (
    "task.encoder.hidden_size=16,task.encoder.num_layers=1,task.encoder.num_attention_heads=2,"
    "task.encoder.intermediate_size=32,task.train_data.input_path=records,"
    "task.train_data.global_batch_size=8,trainer.train_steps=2,trainer.checkpoint_interval=2,"
    "trainer.steps_per_loop=1,trainer.summary_interval=1"
)


@pytest.mark.long
def test_from_text_to_modules_by_the_command_alone(scripts, elsewhere):
    """Vocabulary, records, a training, a chain in processes of its own, TF-Hub modules."""
    texts = ["\n".join(document.paragraphs) for document in make_documents(60)]
    (elsewhere / "text.txt").write_text("\n\n".join(texts))

    def cmlm(name, *arguments):
        return run(scripts / "cmlm", name, *arguments, cwd=elsewhere)

    cmlm("build-vocab", "--input=text.txt", "--output=vocab.txt", "--vocab_size=120")
    cmlm(
        *("create-documents", "--input=text.txt", "--vocab_file=vocab.txt", "--lower_case"),
        "--output_dir=records",
    )
    cmlm(
        *("train", "--experiment=demo", "--mode=train", "--model_dir=model"),
        f"--params_override={TINY}",
    )
    (elsewhere / "chain.yaml").write_text("stages: [{name: next, experiment: demo}]")
    cmlm(
        *("train-stages", "--stages=chain.yaml", "--init_checkpoint=model", "--model_dir=chain"),
        f"--params_override={TINY}",
    )
    cmlm("export-tfhub", "--model_dir=chain/01_next", "--export_dir=tfhub")
    assert (elsewhere / "tfhub" / "encoder" / "saved_model.pb").is_file()


@pytest.mark.long
def test_the_base_install(source, tmp_path, real_weights):
    """Encodes, embeds, indexes, searches and serves without TensorFlow; needs a package index."""
    from official_cmlm import SentenceEncoder

    python, site = environment(tmp_path / "environment")
    before = _megabytes(site)
    done = subprocess.run(
        [python, "-m", "pip", "install", source], capture_output=True, text=True, cwd=tmp_path
    )
    if "No matching distribution found" in done.stderr:
        pytest.skip("needs a package index: pip found none of the requirements")
    assert done.returncode == 0, done.stderr
    texts = ["The key is under the mat.", "Bread is baked."]
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "notes.txt").write_text("\n\n".join(texts))
    program = (
        "import json, sys, numpy, official_cmlm\n"
        "encoder = official_cmlm.SentenceEncoder.load(sys.argv[1])\n"
        "numpy.save(sys.argv[2], encoder.encode(json.loads(sys.argv[3])))"
    )
    vectors = tmp_path / "vectors.npy"
    run(python, "-c", program, real_weights, vectors, json.dumps(texts), cwd=tmp_path)
    expected = SentenceEncoder.load(real_weights, backend="tensorflow").encode(texts)
    np.testing.assert_allclose(np.load(vectors), expected, atol=1e-5)
    cmlm = python.parent / "cmlm"
    model = f"--model={real_weights}"
    run(cmlm, "embed", "texts/notes.txt", model, "--output_dir=out", cwd=tmp_path)
    assert (tmp_path / "out" / "manifest.json").exists()
    run(cmlm, "index", "texts", model, "--to=my.index", cwd=tmp_path)
    output = run(cmlm, "search", "my.index", "Where do I find the key?", cwd=tmp_path)
    assert output.index(texts[0]) < output.index(texts[1])
    size = _megabytes(site) - before
    print(f"{size:.0f} MB")
    assert size < 330
    run(python, "-m", "pip", "install", f"{source}[serve]", cwd=tmp_path)
    command = [cmlm, "serve", "mini-en", "--port=0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as service:
        try:
            line = next(line for line in service.stderr if line.startswith("serving "))
            body = json.dumps({"model": "mini-en", "input": texts}).encode()
            request = Request(f"{line.split()[-1]}/embeddings", body)
            request.add_header("Content-Type", "application/json")
            with urlopen(request, timeout=60) as answer:
                assert len(json.load(answer)["data"]) == len(texts)
        finally:
            service.terminate()
    assert not list(site.glob("tensorflow*"))


# If it is set, README runs with the newest packages that pip finds, as for a user.
UNPINNED = "CMLM_UNPINNED" in os.environ
# A reader's terminal differs: here `adapt` ends after two steps, make only prints what it would do,
# and the setuptools that builds the project is the tests', newer than that of a new venv.
_TERMINAL = """
set -euo pipefail
python3() {
    command python3 "$@"
    rm -rf .venv/lib/python*/site-packages/setuptools*
}
cmlm() {
    case $1 in
        adapt) command cmlm "$@" --params_override=trainer.train_steps=2 ;;
        *) command cmlm "$@" ;;
    esac
}
export MAKEFLAGS=n
"""


@pytest.mark.long
def test_readme_can_be_pasted(tmp_path):
    """All blocks in order, in one terminal, in a copy of the repository."""
    folder = tmp_path / "official_cmlm"
    shutil.copytree(
        ROOT, folder, ignore=shutil.ignore_patterns(".*", "work", "build", "*.egg-info")
    )
    _, site = environment(folder / ".venv")
    run_block = {"bash": "{}", "python": "python - <<'END'\n{}END\n"}
    script = [
        run_block[block.language].format(block.text)
        for block in blocks("README.md")
        if block.language in run_block
    ]
    script.insert(1, 'pip install ".[train,data]"\n')
    variables = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    variables |= {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{variables['PATH']}",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    if not UNPINNED:
        # The file stands for what README's `pip install` would fetch.
        (site / "packages.pth").write_text(f"{sysconfig.get_paths()['purelib']}\n")
        variables |= {"PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0"}
    done = subprocess.run(
        ["bash", "-c", _TERMINAL + "".join(script)],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-6000:]}"
    assert "\nnext:    cmlm export work/model --to=tfhub\n" in done.stderr
    answer = done.stdout.split("work/my.index: ")[1]
    assert "The key of the front door hangs behind the clock" in answer
    assert np.load(folder / "work" / "vectors.npy").shape == (6, 384)
    assert (folder / "work" / "tfhub" / "encoder" / "saved_model.pb").is_file()


def _megabytes(folder):
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6
