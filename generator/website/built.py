"""A build that is left out where nothing has changed since the last one.

    python -m generator.website.built mkdocs build --quiet

runs `python -m mkdocs build --quiet` unless the note in `site/.built` still fits: a digest over
every file of the project (content, traces, code, configuration), Python, the versions of everything
installed and the variables that a build reads, and one over what came out. Where a file changes
while the build runs, or the build fails, nothing is noted.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

SITE = Path("site")
NOTE = SITE / ".built"
# No build reads them. Neither does one read files whose names begin with a dot.
LEFT_OUT = frozenset({"site", "tests", "__pycache__"})
SURPRISES = "PROOFBOOK_SURPRISES"  # set for the build, which then ends with 1 where a run surprised
VARIABLES = ("PROOFBOOK_", "MKDOCS", "NO_MKDOCS", "SOURCE_DATE_EPOCH", "PYTHONPATH")


def inputs(root: Path, environment: Mapping[str, str] = os.environ) -> str:
    """The digest of everything that a build of the folder reads."""
    folders = [Path(one) for one in sys.path if Path(one).is_dir()]
    installed = sorted(path.name for one in folders for path in one.glob("*.*-info"))
    variables = sorted(one for one in environment.items() if one[0].startswith(VARIABLES))
    return _digest(root, [sys.version, installed, variables])


def outputs(root: Path) -> str:
    """The digest of what a build wrote, and of what a person put beside it."""
    return _digest(root / SITE / "pages", []) + _digest(root / SITE / "html", [])


def is_built(root: Path) -> bool:
    """Whether a build of the folder would change nothing."""
    try:
        noted = json.loads((root / NOTE).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return False
    return bool(noted == [inputs(root), outputs(root)])


def build(root: Path, command: list[str]) -> int:
    """Build the folder, and note what from; returns the command's exit code."""
    before = inputs(root)
    (root / NOTE).unlink(missing_ok=True)
    environment = {**os.environ, SURPRISES: "1"}
    done = subprocess.run([sys.executable, "-m", *command], check=False, cwd=root, env=environment)
    if done.returncode == 0 and inputs(root) == before:
        (root / NOTE).write_text(json.dumps([before, outputs(root)]), encoding="utf-8")
    return done.returncode


def _digest(root: Path, facts: object) -> str:
    digest = hashlib.sha256(json.dumps(facts).encode())
    for path in _files(root):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{path.relative_to(root).as_posix()}\0{content}\n".encode())
    return digest.hexdigest()


def _files(root: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(one for one in folders if one not in LEFT_OUT and one[0] != ".")
        yield from (Path(folder, name) for name in sorted(names) if name[0] != ".")


def main() -> int:
    """Build what stands in this folder, unless nothing has changed."""
    try:
        if is_built(Path.cwd()):
            sys.stdout.write(f"{SITE / 'html'}: nothing has changed since it was built\n")
            return 0
        return build(Path.cwd(), sys.argv[1:])
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
