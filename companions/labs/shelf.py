"""All labs, the files that a reader writes for them, and the labs that are solved.

In: the folders of `content/topics/*/labs/`, and the reader's `labs/`. A reader's file is never
written over: it is made where there is none, and a reset keeps the old one under another name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from proofbook.runners.system.book import ROOT
from proofbook.runners.system.errors import FixableError, unknown
from proofbook.runners.system.files import write_text
from proofbook.runners.traces.differences import WrongProgram, wrong_programs

LABS = "topics/*/labs/*/lab.yml"
# The requirement of every lab, beside those of its `lab.yml`.
LENT = "lent"
EVERYWHERE: Mapping[str, Any] = {
    "says": "What the caller passed is as it was; no barrier, group or object collective is added.",
    "formula": "in every lab",
    "fails": "Change a copy, not what the caller uses afterwards, and put back each mode or flag "
    "that you set. Ranks that communicate wait for each other without a barrier.",
}
SOLVED = ".solved.json"  # lab → the digest of what it asked when it was solved


@dataclass(frozen=True)
class Lab:
    """A lab: its folder, and the words of its `lab.yml`, which the book's page prints as well."""

    folder: Path
    words: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Its name, unique in the book."""
        return self.folder.name

    @property
    def requirements(self) -> Mapping[str, Mapping[str, Any]]:
        """The words of each requirement, with the one of every lab last."""
        return {**self.words["requirements"], LENT: EVERYWHERE}

    @property
    def digest(self) -> str:
        """The digest of its task; with another one, a solution has to be graded again."""
        bench = Path(__file__).with_name("benches") / f"{self.name}.py"
        paths = [bench, self.folder / "starter.py", self.folder / "lab.yml"]
        return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()[:16]

    @property
    def wrong(self) -> Sequence[WrongProgram]:
        """The programs that have to fail."""
        return wrong_programs(self.folder / "wrong.yml")


def labs() -> list[Lab]:
    """All labs, in the order in which they are suggested."""
    paths = (ROOT / "content").glob(LABS)
    unsorted = (Lab(path.parent, yaml.safe_load(path.read_text("utf-8"))) for path in paths)
    return sorted(unsorted, key=lambda lab: lab.words["order"])


def lab_named(name: str) -> Lab:
    """The lab of this name, or FixableError."""
    by_name = {lab.name: lab for lab in labs()}
    if name not in by_name:
        raise unknown("lab", name, by_name)
    return by_name[name]


class Desk:
    """A reader's folder of labs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def file(self, lab: Lab) -> Path:
        """The file in which a reader writes this lab."""
        return self.folder / f"{lab.name}.py"

    def start(self, lab: Lab, program: str) -> bool:
        """Write the starter if the reader has no file yet, and return whether it was written.

        `program` is the command that the starter names, instead of `python -m runners`.
        FixableError where the folder is none, or nobody may write into it.
        """
        path = self.file(lab)
        if path.is_file():
            return False
        if (self.folder.exists() and not self.folder.is_dir()) or path.exists():
            raise FixableError(f"{self.folder} is no folder of files; rename what is in its place")
        starter = (lab.folder / "starter.py").read_text(encoding="utf-8")
        self._write(path, starter.replace("python -m runners", program))
        return True

    def _write(self, path: Path, content: str) -> None:
        try:
            write_text(path, content)
        except OSError as error:
            where = self.folder.absolute()
            raise FixableError(
                f"cannot write into {where}: {error.strerror}; call this in a folder of yours"
            ) from None

    def reset(self, lab: Lab) -> Path | None:
        """Rename the reader's file, if there is one, and return its new path."""
        path, number = self.file(lab), 1
        if not path.exists():
            return None
        while (kept := path.with_name(f"{lab.name}.before-{number}.py")).exists():
            number += 1
        path.rename(kept)
        return kept

    def solved(self) -> dict[str, str]:
        """Digests by lab name, as labs were when solved, from the folder's JSON; {} without it."""
        path = self.folder / SOLVED
        try:
            digests: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except ValueError:
            raise FixableError(f"{path} is no JSON; delete it, and solve again") from None
        return digests

    def mark(self, lab: Lab) -> None:
        """Note that a lab is solved."""
        self._write(self.folder / SOLVED, json.dumps(self.solved() | {lab.name: lab.digest}))
