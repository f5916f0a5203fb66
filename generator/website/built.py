"""Whether the built book is still what it was built from: then `make site` builds nothing.

    python -m generator.website.built           exit code 0: it is; 1: it has to be built
    python -m generator.website.built --note    note that it has been built

Two digests decide. One is over all that goes in: every file of the project (content, traces, code,
templates, configuration), files that a person put into `site/pages`, Python, the versions of
everything installed, and the variables that the build reads. The other is over what came out. The
first is taken before a build; where it has changed by the end, nothing is noted.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from generator.website import manifest, one_build
from runners.system import streams

NOTE = Path("site") / ".built"
BEGUN = Path("site") / ".building"  # the digest of what goes in, until the build has ended
PAGES, HTML = Path("site") / "pages", Path("site") / "html"
# No build reads them. Neither does one read files whose names begin with a dot.
LEFT_OUT = frozenset({"site", "tests", "__pycache__"})
VARIABLES = ("PROOFBOOK_", "MKDOCS", "NO_MKDOCS", "SOURCE_DATE_EPOCH", "PYTHONPATH")
OF_THE_COMMIT = b"committed_only"  # an option with which a build also reads what git holds


def inputs(root: Path, environment: Mapping[str, str] = os.environ) -> str:
    """The digest of everything that a build of the folder reads."""
    facts = [sys.version, *sorted(_installed())]
    facts += [f"{name}={environment[name]}" for name in sorted(environment)
             if name.startswith(VARIABLES)]  # fmt: skip
    configuration = root / "mkdocs.yml"
    if configuration.is_file() and OF_THE_COMMIT in configuration.read_bytes():
        facts.append(_commit(root))
    own = {root / PAGES / path for path, _ in manifest.read(root / PAGES)}
    put_there = (path for path in _files(root / PAGES) if path not in own)
    return _digest(root, [*_project(root), *put_there], facts)


def outputs(root: Path) -> str:
    """The digest of what a build wrote."""
    return _digest(root, [*_files(root / PAGES), *_files(root / HTML)], [])


def is_built(root: Path) -> bool:
    """Whether a build of the folder would change nothing."""
    try:
        noted = json.loads((root / NOTE).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return False
    return bool(noted == {"inputs": inputs(root), "outputs": outputs(root)})


def begin(root: Path) -> None:
    """Keep the digest of what goes in while the folder is built."""
    (root / NOTE).unlink(missing_ok=True)
    (root / BEGUN).parent.mkdir(exist_ok=True)
    (root / BEGUN).write_text(inputs(root), encoding="utf-8")


def note(root: Path) -> bool:
    """Note that the folder is built; not where what goes in has changed meanwhile."""
    begun = (root / BEGUN).read_text(encoding="utf-8") if (root / BEGUN).is_file() else ""
    (root / BEGUN).unlink(missing_ok=True)
    if begun != inputs(root):
        return False
    found = {"inputs": begun, "outputs": outputs(root)}
    (root / NOTE).write_text(f"{json.dumps(found)}\n", encoding="utf-8")
    return True


def _project(root: Path) -> Iterator[Path]:
    for path in sorted(root.iterdir()):
        if path.name not in LEFT_OUT and not path.name.startswith("."):
            yield from _files(path)


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(one for one in folders if one != "__pycache__" and one[0] != ".")
        yield from (Path(folder, name) for name in sorted(names) if name[0] != ".")


def _installed() -> set[str]:
    """Names with versions of all that is installed, as their folders are called."""
    folders = [Path(one) for one in sys.path if Path(one).is_dir()]
    return {path.name for one in folders for path in one.glob("*.*-info")}


def _commit(root: Path) -> str:
    command = ["git", "-C", str(root), "rev-parse", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def _digest(root: Path, paths: Iterable[Path], facts: Sequence[str]) -> str:
    digest = hashlib.sha256(json.dumps(facts).encode())
    for path in paths:
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{path.relative_to(root).as_posix()}\0{content}\n".encode())
    return digest.hexdigest()


def main(arguments: Sequence[str] | None = None) -> int:
    """Say by the exit code whether the book in this folder is built, or note that it is."""
    parser = argparse.ArgumentParser(prog="python -m generator.website.built")
    parser.add_argument("--note", action="store_true", help="note that it has been built")
    options = parser.parse_args(arguments)
    try:
        with one_build.alone(Path.cwd() / PAGES):
            return _told(Path.cwd(), is_over=options.note)
    except KeyboardInterrupt:
        return 130


def _told(root: Path, *, is_over: bool) -> int:
    if is_over:
        note(root)
        return 0
    if is_built(root):
        sys.stdout.write(f"{HTML}: nothing has changed since it was built\n")
        return 0
    begin(root)
    return 1


if __name__ == "__main__":
    streams.open_all()
    sys.exit(streams.report(main()))
