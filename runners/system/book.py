"""Which book commands work in, its experiments, and how a person calls the runners. No torch.

The book is ours, or one of one's own: a folder with `experiments/` and `content/`.
"""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# A folder of experiments beside ours: the tests' own, or ones not meant to be part of the book.
MORE = "PROOFBOOK_EXPERIMENTS"
# The folder of a book of one's own, whose `experiments/` stands for ours; `enter_book` sets it.
OWN = "PROOFBOOK_BOOK"
PLAIN = b"runners.plain"  # what an experiment without ranks imports


def enter_book(folder: Path) -> None:
    """Work in a folder: if it holds a book of one's own, with its experiments and its traces."""
    if (folder / "experiments").is_dir() and (folder / "content").is_dir():
        os.environ[OWN] = str(folder.resolve())
        os.environ.setdefault("PROOFBOOK_TRACES", str(folder.resolve() / "content" / "traces"))


def own_book() -> Path | None:
    """The folder of a book of one's own; None in ours, and in any other folder."""
    return Path(own) if (own := os.environ.get(OWN)) else None


def program(in_ours: str = "python -m runners") -> str:
    """How a person calls the runners: in a clone of ours by its Python, elsewhere by their name."""
    is_ours = (ROOT / "pyproject.toml").is_file() and not own_book()
    return in_ours if is_ours else "proofbook"


def experiment_files() -> dict[str, Path]:
    """The file that declares each experiment, by its name."""
    paths = list((own_book() or ROOT / "runners").glob("experiments/[!_]*.py"))
    if folder := os.environ.get(MORE):
        paths += Path(folder).glob("[!_]*.py")
    return {path.stem: path for path in sorted(paths)}


def needs_no_torch() -> bool:
    """Whether this is a book of one's own whose experiments all have no ranks."""
    return bool(own_book()) and all(map(is_plain, experiment_files()))


def is_plain(experiment: str) -> bool:
    """Whether an experiment has no ranks, and so needs no torch."""
    own = experiment_files().get(experiment)
    return own is not None and PLAIN in own.read_bytes()  # also where it cannot be parsed
