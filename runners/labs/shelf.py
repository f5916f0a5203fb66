"""The labs that there are, the files of a reader, and which of them are solved.

In: the folders of `content/topics/*/labs/`, and the reader's `labs/`. A reader's file is never
written over: it is made where there is none, and a reset keeps the old one under another name.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from runners.system.book import ROOT
from runners.system.errors import FixableError, unknown
from runners.traces.differences import WrongProgram, wrong_programs

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
        """By which readers call it; the whole book shares it."""
        return self.folder.name

    @property
    def requirements(self) -> Mapping[str, Mapping[str, Any]]:
        """The words of each, those of every lab last."""
        return {**self.words["requirements"], LENT: EVERYWHERE}

    @property
    def digest(self) -> str:
        """Of what it asks: another one means that a solution has to be graded again."""
        bench = Path(__file__).with_name("benches") / f"{self.name}.py"
        asked = [bench, self.folder / "starter.py", self.folder / "lab.yml"]
        return hashlib.sha256(b"".join(one.read_bytes() for one in asked)).hexdigest()[:16]

    @property
    def wrong(self) -> Sequence[WrongProgram]:
        """The programs that have to fail."""
        return wrong_programs(self.folder / "wrong.yml")


def labs() -> list[Lab]:
    """All labs, in the order in which they are suggested."""
    found = [
        Lab(path.parent, yaml.safe_load(path.read_text(encoding="utf-8")))
        for path in (ROOT / "content").glob(LABS)
    ]
    return sorted(found, key=lambda one: one.words["order"])


def lab(name: str) -> Lab:
    """The lab of this name.

    Raises:
        FixableError: there is none.
    """
    by_name = {one.name: one for one in labs()}
    if name not in by_name:
        raise unknown("lab", name, by_name)
    return by_name[name]


class Desk:
    """A reader's folder of labs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def file(self, one: Lab) -> Path:
        """Where a reader writes this lab."""
        return self.folder / f"{one.name}.py"

    def start(self, one: Lab, program: str) -> bool:
        """Write the starter where the reader has no file yet; whether that was so.

        Args:
            one: the lab.
            program: what a reader calls, which the starter names.

        Raises:
            FixableError: the folder is none, or nobody may write into it.
        """
        path = self.file(one)
        if path.is_file():
            return False
        if (self.folder.exists() and not self.folder.is_dir()) or path.exists():
            raise FixableError(f"{self.folder} is no folder of files; rename what is in its place")
        starter = (one.folder / "starter.py").read_text(encoding="utf-8")
        self._write(path, starter.replace("python -m runners", program))
        return True

    def _write(self, path: Path, content: str) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            _written(path, content.encode())
        except OSError as error:
            where = self.folder.absolute()
            raise FixableError(
                f"cannot write into {where}: {error.strerror}; call this in a folder of yours"
            ) from None

    def reset(self, one: Lab) -> Path | None:
        """Begin anew; the name under which the reader's file is kept, if there was one."""
        path, number = self.file(one), 1
        if not path.exists():
            return None
        while (kept := path.with_name(f"{one.name}.before-{number}.py")).exists():
            number += 1
        path.rename(kept)
        return kept

    def solved(self) -> dict[str, str]:
        """The labs that were solved here, each with the digest of what it asked then."""
        path = self.folder / SOLVED
        try:
            found: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except ValueError:
            raise FixableError(f"{path} is no JSON; delete it, and solve again") from None
        return found

    def mark(self, one: Lab) -> None:
        """Note that a lab is solved."""
        self._write(self.folder / SOLVED, json.dumps(self.solved() | {one.name: one.digest}))


def _written(path: Path, content: bytes) -> None:
    """Write a file whole: it appears with all of its content, or not at all."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(content)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
