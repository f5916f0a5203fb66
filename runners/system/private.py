"""Folders that belong to this user alone, although others can foresee their names.

In: a path, such as one in the machine's folder for temporary files. Out: a `PrivateFolder`, which
is checked once it is open, and whose files are reached by its descriptor: whoever then moves its
name, or puts a link there, changes nothing. No torch.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from proofbook.runners.system.errors import FixableError

_OTHERS = 0o077  # of a mode, what group and others may do


class PrivateFolder:
    """A folder that no other user can enter, made where it is missing; in `parent`, or by its path.

    Raises:
        FixableError: at its name is a link, a file, or a folder that others own or can enter.
    """

    _descriptor = -1

    def __init__(self, path: Path, parent: PrivateFolder | None = None) -> None:
        self.path = path
        name, at = (path.name, parent._descriptor) if parent else (str(path), None)
        try:
            with suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=at)
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
            self._descriptor = os.open(name, flags, dir_fd=at)
            status = os.fstat(self._descriptor)
            why = f"it belongs to user {status.st_uid}" * (status.st_uid != os.geteuid())
            why = why or "others can enter it" * bool(status.st_mode & _OTHERS)
        except OSError as error:
            why = error.strerror or str(error)
        if why:
            raise FixableError(
                f"{path} must be a folder that only you can enter, and is not ({why}): remove it, "
                "or set TMPDIR to a folder of your own"
            )

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def open(self, name: str, mode: str = "rb") -> IO[Any]:
        """Open a file of the folder, as `open` does, but through no link."""

        def opener(path: str, flags: int) -> int:
            return os.open(path, flags | os.O_NOFOLLOW, 0o600, dir_fd=self._descriptor)

        return open(name, mode, opener=opener)

    def rename(self, name: str, new: str) -> None:
        """Rename a file of the folder, over one that has the new name."""
        os.replace(name, new, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)

    def names(self) -> list[str]:
        """The names in the folder."""
        with os.scandir(self._descriptor) as entries:
            return [entry.name for entry in entries]

    def has(self, name: str) -> bool:
        """Whether the folder has a file of this name."""
        with suppress(FileNotFoundError):
            return bool(os.stat(name, dir_fd=self._descriptor, follow_symlinks=False))
        return False

    def remove(self, name: str) -> None:
        """Remove a folder inside it, as far as the system lets us."""
        shutil.rmtree(name, ignore_errors=True, dir_fd=self._descriptor)


def temporary() -> PrivateFolder:
    """This user's folder in the machine's one for temporary files; it stays, to keep its name."""
    return PrivateFolder(Path(tempfile.gettempdir(), f"proofbook-{os.geteuid()}"))
