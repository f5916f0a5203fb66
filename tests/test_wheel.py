"""The wheel: what it brings, and what its command does in an empty folder, outside a clone."""

import os
import shutil
import subprocess
import sys
import zipfile

import pytest

from proofbook.runners.system.book import ROOT
from tests.processes import ran

pytestmark = pytest.mark.builds


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder in which the wheel's files are, as pip would put them."""
    folder = tmp_path_factory.mktemp("wheel")
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    files = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in files.splitlines():
        if (ROOT / name).is_file() and not name.startswith(("tests/", "site/")):
            (folder / "source" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / "source" / name)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--wheel-dir", folder, folder / "source"], check=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        file.extractall(folder / "installed")
    return folder / "installed"


def called(folder, words, installed):
    """A call of Python in an empty folder that finds the installed package, and not this clone."""
    environment = {k: v for k, v in os.environ.items() if "PROOFBOOK" not in k}
    return ran([sys.executable, *words], folder, environment | {"PYTHONPATH": str(installed)})


def test_the_wheel_has_all_that_an_experiment_follows_from(installed, tmp_path):
    """Texts and programs of content too: the digest of each experiment is that of this clone."""
    asked = "from proofbook.runners.core.declared.experiment import names\n"
    asked += "from proofbook.runners.traces.digest import *\n"
    asked += "print([(name, source_digest(name), program_digests(name)) for name in names()])"
    there = called(tmp_path, ["-c", asked], installed)
    here = called(tmp_path, ["-c", asked], ROOT)
    assert there.stdout == here.stdout
    assert "source_digest" not in there.stderr
    assert there.stdout.count("(") > 30
    entry = (next(installed.glob("*.dist-info")) / "entry_points.txt").read_text()
    assert "proofbook = proofbook.__main__:command" in entry


def test_outside_a_clone_the_current_folder_gets_what_a_command_writes(installed, tmp_path):
    begun = called(tmp_path, ["-m", "proofbook", "lab", "ring"], installed)
    assert "wrote labs/ring.py" in begun.stdout + begun.stderr
    assert {one.name for one in tmp_path.iterdir()} == {"labs"}
    (tmp_path / "mine.py").write_text("def build():\n    return []\n")
    own = ["plan", "for", "mine:build", "--batch", "mine:build", "--strategies", "single"]
    found = called(tmp_path, ["-m", "proofbook", *own], installed)
    assert "mine.py:1: build builds no nn.Module" in found.stderr
    shown = called(tmp_path, ["-m", "proofbook", "show", "ddp.ddp"], installed)
    assert '{{ ddp.ddp.backend }}  "gloo"' in shown.stdout


def test_outside_a_clone_a_book_of_ones_own_is_made_and_found(installed, tmp_path):
    made = called(tmp_path, ["-m", "proofbook", "new", "book", "mine"], installed)
    assert made.returncode == 0, made.stderr
    assert "sound: 4 questions checked" in made.stdout
    again = called(tmp_path / "mine", ["-m", "proofbook", "run"], installed)
    assert "0 measured, 1 already fresh" in again.stdout
    assert (tmp_path / "mine" / ".gitignore").exists()


OWN_MODEL = """
import torch

def build():
    torch.manual_seed(0)
    return torch.nn.Linear(8, 1)
"""
OWN_SCRIPT = """
import torch
import torch.distributed as dist
from runners.model import build

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(build())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for _ in range(4):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(torch.randn(4, 8)), torch.ones(4, 1)).backward()
    optimizer.step()
dist.destroy_process_group()
"""


@pytest.mark.ranks
def test_beside_another_projects_runners_a_script_is_verified_and_a_program_judged(
    installed, tmp_path
):
    """The wheel installs one name. A lab, too, begins where it is called."""
    assert {one.name.partition("-")[0] for one in installed.iterdir()} == {"proofbook"}
    (tmp_path / "runners").mkdir()
    (tmp_path / "runners" / "model.py").write_text(OWN_MODEL)
    (tmp_path / "train.py").write_text(OWN_SCRIPT)
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = called(tmp_path, [*torchrun, "-m", "proofbook.verify", "train.py"], installed)
    assert done.stdout.splitlines()[-1].startswith("verify: agrees"), done.stdout + done.stderr
    page = (ROOT / "content" / "pages" / "judge.md").read_text(encoding="utf-8")
    example = page.partition("```python\n")[2].partition("```")[0]
    (tmp_path / "test_mine.py").write_text(example, encoding="utf-8")
    done = called(tmp_path, ["-m", "pytest", "-q", "test_mine.py"], installed)
    assert "1 passed" in done.stdout, done.stdout + done.stderr
    done = called(tmp_path, ["-m", "proofbook", "lab", "ring", "--ranks", "2"], installed)
    assert done.returncode == 1, done.stderr
    assert "NotImplementedError" in done.stdout
    assert (tmp_path / "labs" / "ring.py").exists()
