"""The browser that the tests drive: Chromium or Chrome from PATH, else installed, else one line.

`make test` runs this file first, so that a missing browser is said before minutes of tests. With
`--shell`, as the gate calls it, Chromium's headless shell, which takes less of the processor, is
installed beside another browser where that is possible, and so is a font as wide as most readers'.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

SHELL = "chromium-headless-shell"
ON_PATH = (SHELL, "chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
ON_MACOS = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
FONT = "fonts-liberation"  # as wide as Arial; a bare machine has DejaVu, which is wider
APT = ("apt-get", "-o", "DPkg::Lock::Timeout=300", "-y", "-qq")  # a machine that starts may update
# package manager → the command that brings a package; all but brew want root
INSTALLERS = {
    "apt-get": (*APT, "install", "--no-install-recommends"),
    "dnf": ("dnf", "install", "-y", "-q"),
    "brew": ("brew", "install", "--cask"),
}
NONE_HERE = (
    "proofbook: the browser tests need Chromium or Chrome on PATH, and it could not be installed "
    "from here: {reason}"
)


def find_browser(names: Sequence[str] = ON_PATH) -> Path | None:
    """The first browser of some names on PATH, else Chrome on a Mac, or None."""
    found = next(filter(None, map(shutil.which, names)), None)
    if found:
        return Path(found)
    return next((Path(place) for place in ON_MACOS if Path(place).is_file()), None)


def install_browser(packages: Sequence[str] = (SHELL, "chromium")) -> Path:
    """Install Chromium by the machine's package manager.

    Args:
        packages: the first of these that there is.

    Raises:
        RuntimeError: with the reason, in one line.
    """
    manager = next((name for name in INSTALLERS if shutil.which(name)), None)
    if manager is None:
        raise RuntimeError("no package manager that is known here")
    prefix = [] if manager == "brew" or os.geteuid() == 0 else ["sudo", "-n"]
    if prefix and not shutil.which("sudo"):
        raise RuntimeError(f"{manager} wants root")
    if manager == "apt-get":
        _run([*prefix, *APT, "update"])
    for package in packages:
        print("Installing", package, flush=True)
        with suppress(RuntimeError):
            _run([*prefix, *INSTALLERS[manager], package])
            if found := find_browser():
                return found
    raise RuntimeError(f"{manager} brought no browser")


def _run(command: list[str]) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(command, env=environment, stdout=subprocess.DEVNULL)
    if done.returncode:
        raise RuntimeError(f"`{' '.join(command)}` ended with {done.returncode}")


def main() -> int:
    """Find or install the browser, and say which."""
    found = find_browser()
    try:
        if found and "--shell" in sys.argv and found.name != SHELL:
            with suppress(RuntimeError):
                found = install_browser([SHELL])
        if "--shell" in sys.argv and shutil.which("apt-get") and os.geteuid() == 0:
            with suppress(RuntimeError):
                _run([*INSTALLERS["apt-get"], FONT])
        print(f"Browser: {found or install_browser()}")
    except RuntimeError as error:
        print(NONE_HERE.format(reason=error), file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
