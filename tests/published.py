"""The committed book, published from a clone in which a second machine has measured as well."""

import os
import shutil
import subprocess
from pathlib import Path

from tests.clones import lend_environment, pasted
from tests.conftest import ROOT, copy_of_the_book, without_torch

ADDRESS = "https://example.org/book/"
COMMITTED_AT = "2026-01-02T03:04:05Z"
DESK = "desk"  # the machine that is not in the commit


def clone_of(folder: Path) -> Path:
    """The sources of a site that `publish` built."""
    return folder.parents[1]


def publish(folder: Path) -> Path:
    """Call `make publish` in a clone of one commit; the site's folder."""
    copy_of_the_book(folder)
    for name in ("Makefile", ".gitignore"):
        shutil.copy2(ROOT / name, folder)
    shutil.copytree(ROOT / "requirements", folder / "requirements")
    lend_environment(folder)
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org"]
    when = {**os.environ, "GIT_COMMITTER_DATE": COMMITTED_AT}
    for command in (["init", "-q"], ["add", "-A", "-f", "content"], ["commit", "-qm", "book"]):
        subprocess.run([*git, *command], cwd=folder, check=True, env=when)
    traces = folder / "content" / "traces"
    reference = next(traces.glob("reference-*"))
    (traces / DESK).mkdir()
    for path in reference.glob("*.json"):
        text = path.read_text(encoding="utf-8").replace(reference.name, DESK)
        (traces / DESK / path.name).write_text(text, encoding="utf-8")
    (traces / "this-machine").write_text(f"{DESK}\n")
    done = pasted(f"make publish SITE_URL={ADDRESS}", folder, **without_torch(folder))
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site" / "book"
