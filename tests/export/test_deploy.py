"""The files of deploy/: their flags exist, their limits fit, and the image's steps work."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys

import pytest
import yaml

from official_cmlm import command
from tests.docs.pages import ROOT
from tests.test_command import get_flags

DEPLOY = ROOT / "deploy"


def _steps():
    """Returns (instruction, argument) of the Dockerfile's lines."""
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    return [line.split(" ", 1) for line in lines if line and not line.startswith("#")]


def _step(instruction):
    """Returns the argument of the only instruction of a kind."""
    (argument,) = [argument for name, argument in _steps() if name == instruction]
    return argument


def _commands():
    """Returns the words after `cmlm serve` of each file."""
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["encoder"]
    unit = re.search(r"^ExecStart=\S+/cmlm serve (.*)$", _unit(), re.MULTILINE)
    return [json.loads(_step("CMD")), compose["command"], unit[1].split()]


def _unit():
    return (DEPLOY / "official-cmlm.service").read_text()


def test_flags_and_limits_fit():
    """Flags exist, the licence is copied, the time to end and the size of bodies are enough."""
    assert json.loads(_step("ENTRYPOINT")) == ["cmlm", "serve"]
    assert "LICENSE" in next(argument for name, argument in _steps() if name == "COPY").split()
    flags = []
    for words in _commands():
        flags.append(get_flags("serve"))
        words = command._convert_to_flags(command.COMMANDS["serve"], words, flags[-1])
        flags[-1](["serve", *words])
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["encoder"]
    assert int(compose["stop_grace_period"][:-1]) > flags[1]["shutdown_seconds"].value
    assert int(re.search(r"TimeoutStopSec=(\d+)", _unit())[1]) > flags[2]["shutdown_seconds"].value
    body = re.search(r"client_max_body_size (\d+)m", (DEPLOY / "nginx.conf").read_text())
    assert int(body[1]) == flags[1]["max_body_mb"].value


@pytest.mark.long
def test_the_steps_of_the_image(tmp_path):
    """Without Docker: the copies, the installation, the start and the check of its health."""
    source = tmp_path / "source"
    source.mkdir()
    ignored = shutil.ignore_patterns("__pycache__")
    for words in [argument.split() for name, argument in _steps() if name == "COPY"]:
        *copied, target = words
        for name in copied:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, tmp_path / target[1:], ignore=ignored)
            else:
                shutil.copy(ROOT / name, source)
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    paths = os.environ | {"PATH": f"{environment / 'bin'}:{os.environ['PATH']}"}
    paths |= {"HOME": str(tmp_path), "CMLM_API_KEY": "a-long-key"}
    paths.pop("PYTHONPATH", None)
    (install,) = [step for name, step in _steps() if name == "RUN" and "pip install" in step]
    install = install.replace("/source", str(source))
    done = subprocess.run(["sh", "-c", install], env=paths, capture_output=True, text=True)
    if "No matching distribution found" in done.stderr:
        pytest.skip("needs a package index: pip found none of the requirements")
    assert done.returncode == 0, done.stderr
    start = [*json.loads(_step("ENTRYPOINT")), *json.loads(_step("CMD")), "--port=0"]
    health = json.loads(_step("HEALTHCHECK").partition("CMD ")[2])
    with subprocess.Popen(
        start, env=paths, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as server:
        try:
            for line in server.stdout:
                if address := re.search(r"http://[\d.]+:(\d+)/v1", line):
                    break
            health[-1] = health[-1].replace(":8000", f":{address[1]}")
            subprocess.run(health, env=paths, check=True, timeout=60)
        finally:
            server.send_signal(signal.SIGTERM)
        assert server.wait(timeout=60) == 0
