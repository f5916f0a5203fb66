"""Each release of torch that pip has, newest first, in an environment that is deleted after.

`verify` is installed there as a reader installs it. The newest release also runs the listings of
the book, and what they print or how they end may not change.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clones import cloned
from tests.conftest import ROOT

pytestmark = pytest.mark.soak

RELEASES = ("2.15", "2.14", "2.13", "2.12")
TRACE = "listings.json"
REFERENCE = next((ROOT / "content" / "traces").glob(f"reference-*/{TRACE}"))
JUDGED = "agrees_in_all or first_finding or one_process or divided_by_hand or gpus or private_name"
listed = []  # releases that have run the listings


@pytest.fixture(scope="module", params=RELEASES)
def python(request, tmp_path_factory):
    """The Python of an environment with `proofbook[verify]` and a release of torch."""
    folder = tmp_path_factory.mktemp("release")
    built, found = folder / "built", folder / "environment" / "bin" / "python"
    _done(sys.executable, "-m", "venv", found.parents[1])
    pip = [found, "-m", "pip", "--disable-pip-version-check"]
    _done(*pip, "wheel", "--no-deps", "--wheel-dir", built, cloned(folder / "source"))
    (wheel,) = built.glob("*.whl")
    release = f"torch=={request.param}.*"
    words = [*pip, "install", f"proofbook[verify] @ {wheel.as_uri()}", release]
    words += ["hypothesis", "pytest-timeout"]  # with which the tests of `verify` run there
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        shutil.rmtree(folder)
        why = [one for one in done.stdout.splitlines() if "requested" in one] or [done.stderr]
        pytest.skip(f"pip does not install {release} here: {'; '.join(map(str.strip, why))}")
    yield found
    shutil.rmtree(folder)


def _done(*words, **more):
    """What a command printed."""
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_installed_command_judges_a_script(python, tmp_path):
    program = shutil.copy(ROOT / "tests" / "verify" / "programs" / "language.py", tmp_path)
    command = [python.with_name("proofbook"), "verify", "--ranks", "2", "--seconds", "0", program]
    plain = {name: one for name, one in os.environ.items() if not name.startswith("PYTHON")}
    said = _done(*command, "fsdp", "accumulate", cwd=tmp_path, env=plain)
    assert said.splitlines()[-1].startswith("verify: agrees"), said


def test_programs_are_judged_as_on_the_release_of_this_project(python):
    words = [python, "-m", "pytest", "-q", "-o", "addopts=", "-p", "no:cacheprovider"]
    files = [f"tests/verify/test_{name}.py" for name in ("judgements", "verify")]
    print(_done(*words, *files, "-k", JUDGED, cwd=ROOT).splitlines()[-1])


def test_listings_end_and_print_as_the_book_shows(python, tmp_path):
    if listed:
        pytest.skip(f"torch {listed[0]} is newer, and has run them")
    traces = {"PROOFBOOK_TRACES": str(tmp_path / "traces")}
    words = [python, "-m", "runners", "run", "listings"]
    print(_done(*words, cwd=ROOT, env=os.environ | traces))
    (own,) = tmp_path.glob(f"traces/*/{TRACE}")
    now, before = _read(own), _read(REFERENCE)
    listed.append(now["circumstances"]["torch"])
    changed = {
        name: (_outcome(one), _outcome(now["runs"][name]))
        for name, one in before["runs"].items() if _outcome(one) != _outcome(now["runs"][name])
    }  # fmt: skip
    assert changed == {}, json.dumps(changed, indent=1)


def _read(path: Path):
    return json.loads(path.read_text(encoding="utf-8"))


def _outcome(run):
    """How a run ended and what it printed, without what depends on speed and on memory."""
    unit = r"[\d.,]+(?= (?:tokens/s|steps per second|MiB|ms|s)\b)"
    printed = [re.sub(unit, "…", line) for line in run.get("printed", [])]
    error = run.get("error") or {}
    return run["status"], [one["status"] for one in run["ranks"]], error.get("kind"), printed
