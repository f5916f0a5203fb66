"""The browser that the tests drive: Chromium or Chrome from PATH, else installed, else one line.

`make test` runs this file first, so that a missing browser is said before minutes of tests:
`python tests/browser.py` prints which browser it is, and exits 2 with one line where none is to be
had. The tests take the path from `find_browser`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ON_PATH = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
ON_MACOS = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
# package manager → the commands that bring Chromium; all but brew want root
INSTALLERS = {
    "apt-get": (
        ["apt-get", "update", "-qq"],
        ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium"],
    ),
    "dnf": (["dnf", "install", "-y", "-q", "chromium"],),
    "zypper": (["zypper", "--non-interactive", "install", "chromium"],),
    "pacman": (["pacman", "-Sy", "--noconfirm", "chromium"],),
    "apk": (["apk", "add", "chromium"],),
    "brew": (["brew", "install", "--cask", "chromium"],),
}
NONE_HERE = (
    "proofbook: the browser tests need Chromium or Chrome on PATH, and it could not be installed "
    "from here: {reason}"
)


def find_browser() -> Path | None:
    """The browser of this machine, or None."""
    for name in ON_PATH:
        if found := shutil.which(name):
            return Path(found)
    return next((Path(place) for place in ON_MACOS if Path(place).is_file()), None)


def _prefix(manager: str) -> list[str] | None:
    """What to put before the manager's command; None where this user may not install."""
    if manager == "brew" or os.geteuid() == 0:
        return []
    sudo = shutil.which("sudo")
    if sudo and not subprocess.run([sudo, "-n", "true"], capture_output=True).returncode:
        return [sudo, "-n"]
    return None


def _commands() -> Iterator[list[str]]:
    """The commands that install Chromium here.

    Raises:
        RuntimeError: no known package manager, or no right to use it.
    """
    manager = next((name for name in INSTALLERS if shutil.which(name)), None)
    if manager is None:
        raise RuntimeError("no package manager that is known here")
    prefix = _prefix(manager)
    if prefix is None:
        raise RuntimeError(f"{manager} wants root")
    yield from (prefix + command for command in INSTALLERS[manager])


def install_browser() -> Path:
    """Install Chromium by the machine's package manager.

    Raises:
        RuntimeError: with the reason, in one line.
    """
    for command in _commands():
        print("Installing Chromium:", " ".join(command), flush=True)
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        done = subprocess.run(command, env=environment, stdout=subprocess.DEVNULL)
        if done.returncode:
            raise RuntimeError(f"`{' '.join(command)}` ended with {done.returncode}")
    found = find_browser()
    if found is None:
        raise RuntimeError("the package was installed, but brought no browser")
    return found


def main() -> int:
    """Find or install the browser, and say which."""
    try:
        print(f"Browser: {find_browser() or install_browser()}")
    except RuntimeError as error:
        print(NONE_HERE.format(reason=error), file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
