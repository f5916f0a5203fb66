"""Folders that belong to this user alone, although others can foresee their names.

In: a path, such as one in the machine's folder for temporary files. Out: a `PrivateFolder`, checked
once it is open; files are reached by its descriptor, wherever its name leads then. No torch.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from proofbook.runners.system.errors import FixableError


class PrivateFolder:
    """A folder that no other user can enter, made where it is missing; in `parent`, or by its path.

    Raises:
        FixableError: at its name is a link, a file, or a folder that others own or can enter.
    """

    descriptor = -1

    def __init__(self, path: Path, parent: PrivateFolder | None = None) -> None:
        self.path = path
        name, at = (path.name, parent.descriptor) if parent else (str(path), None)
        try:
            with suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=at)
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
            self.descriptor = os.open(name, flags, dir_fd=at)
            status = os.fstat(self.descriptor)
            why = f"it belongs to user {status.st_uid}" * (status.st_uid != os.geteuid())
            why = why or "others can enter it" * bool(status.st_mode & 0o077)
        except OSError as error:
            why = error.strerror or str(error)
        if why:
            raise FixableError(
                f"{path} must be a folder that only you can enter, and is not ({why}): remove it, "
                "or set TMPDIR to a folder of your own"
            )

    def __del__(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)

    def open(self, name: str, mode: str = "rb") -> IO[Any]:
        """Open a file of the folder, as `open` does, but through no link."""

        def opener(path: str, flags: int) -> int:
            return os.open(path, flags | os.O_NOFOLLOW, 0o600, dir_fd=self.descriptor)

        return open(name, mode, opener=opener)


def temporary() -> PrivateFolder:
    """This user's folder in the machine's one for temporary files; it stays, to keep its name."""
    return PrivateFolder(Path(tempfile.gettempdir(), f"proofbook-{os.geteuid()}"))
