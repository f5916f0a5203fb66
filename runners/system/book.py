"""Which book commands work in, its experiments, and how a person calls the runners. No torch.

The book is ours, or one of one's own: a folder with `experiments/` and `content/`. A command
enters it once, at its start, and passes its folder on to the processes that it starts.
"""

import os
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# A folder of experiments beside ours: the tests' own, or ones not meant to be part of the book.
MORE = "PROOFBOOK_EXPERIMENTS"
PLAIN = b"proofbook.runners.plain"  # what an experiment without ranks imports
SEVERAL = "EXPERIMENTS"  # in a file of several experiments: each by its name
SHARED = ROOT / "content" / "code"  # what programs of lessons import as if it lay beside them


class _Entered:
    """The folder of the book of one's own that this process works in; None in ours."""

    book: Path | None = None


def enter_book(folder: Path | None) -> None:
    """Work in the book of this folder from now on; in ours, where it holds none of one's own.

    The folder goes on Python's path, behind all else, so that experiments of one's own can import
    `experiments._shared`; behind what programs of ours share.
    """
    sys.path[:] = [path for path in sys.path if path != str(_Entered.book)]
    if str(SHARED) not in sys.path:
        sys.path.append(str(SHARED))
    _Entered.book = None
    if folder and (folder / "experiments").is_dir() and (folder / "content").is_dir():
        _Entered.book = folder.resolve()
        sys.path.append(str(_Entered.book))


def own_book() -> Path | None:
    """The folder of a book of one's own; None in ours, and in any other folder."""
    return _Entered.book


def program(in_ours: str = "python -m runners") -> str:
    """How a person calls the runners: in a clone of ours by its Python, elsewhere by their name."""
    is_ours = (ROOT / "pyproject.toml").is_file() and not own_book()
    return in_ours if is_ours else "proofbook"


def experiment_files() -> dict[str, Path]:
    """The file that declares each experiment, by the experiment's name."""
    own = own_book()
    folders = [own / "experiments"] if own else [ROOT / "runners" / "experiments"]
    folders += [] if own else sorted(ROOT.glob("companions/*/experiments"))
    paths = sorted(path for folder in folders for path in folder.glob("[!_]*.py"))
    if folder := os.environ.get(MORE):
        paths += sorted(Path(folder).glob("[!_]*.py"))
    return {name: path for path in paths for name in experiments_in(path)}


def experiments_in(path: Path) -> list[str]:
    """Names of the experiments that a file declares: the keys of its `EXPERIMENTS`, or its own."""
    text = path.read_text(encoding="utf-8", errors="replace")  # which is not executed
    listed = text.partition(f"\n{SEVERAL} = {{")[2].partition("}")[0]
    return re.findall(r"""["'](\w+)["']\s*:""", listed) or [path.stem]


def needs_no_torch() -> bool:
    """Whether this is a book of one's own whose experiments all have no ranks."""
    return bool(own_book()) and all(map(is_plain, experiment_files()))


def is_plain(experiment: str) -> bool:
    """Whether an experiment has no ranks, and so needs no torch."""
    own = experiment_files().get(experiment)
    return own is not None and PLAIN in own.read_bytes()  # also where it cannot be parsed
