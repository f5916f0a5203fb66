"""The browser that the tests drive: Chromium or Chrome from PATH, else installed, else one line.

`make test` runs this file first, so that a missing browser is said before minutes of tests:
`python tests/browser.py` prints which browser it is, and exits 2 with one line where none is to be
had. The tests take the path from `find_browser`. Chromium's headless shell is the same browser
without windows, which takes less of the processor: it is taken where it is, and with `--shell`, as
the gate calls this, installed beside another browser where that is possible.
"""

from __future__ import annotations

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
WAITS = ("-o", "DPkg::Lock::Timeout=300")  # seconds: a machine that just started updates itself
# package manager → what readies it, and the command that brings a package; all but brew want root
INSTALLERS = {
    "apt-get": (
        ["apt-get", "update", "-qq"],
        ["apt-get", *WAITS, "install", "-y", "-qq", "--no-install-recommends"],
    ),
    "dnf": ([], ["dnf", "install", "-y", "-q"]),
    "zypper": ([], ["zypper", "--non-interactive", "install"]),
    "pacman": ([], ["pacman", "-Sy", "--noconfirm"]),
    "apk": ([], ["apk", "add"]),
    "brew": ([], ["brew", "install", "--cask"]),
}
PACKAGES = {"apt-get": (SHELL, "chromium")}  # the first that there is; elsewhere `chromium`
NONE_HERE = (
    "proofbook: the browser tests need Chromium or Chrome on PATH, and it could not be installed "
    "from here: {reason}"
)


def find_browser(names: Sequence[str] = ()) -> Path | None:
    """The browser of this machine, or None.

    Args:
        names: of programs, the first of which that is on PATH is taken; by default `ON_PATH`.
    """
    for name in names or ON_PATH:
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


def _manager() -> tuple[str, list[str]]:
    """This machine's package manager, and what stands before its commands.

    Raises:
        RuntimeError: no known package manager, or no right to use it.
    """
    manager = next((name for name in INSTALLERS if shutil.which(name)), None)
    if manager is None:
        raise RuntimeError("no package manager that is known here")
    prefix = _prefix(manager)
    if prefix is None:
        raise RuntimeError(f"{manager} wants root")
    return manager, prefix


def _run(command: list[str]) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(command, env=environment, stdout=subprocess.DEVNULL)
    if done.returncode:
        raise RuntimeError(f"`{' '.join(command)}` ended with {done.returncode}")


def install_browser(packages: Sequence[str] = ()) -> Path:
    """Install Chromium by the machine's package manager.

    Args:
        packages: the first of these that there is; by default those of `PACKAGES`.

    Raises:
        RuntimeError: with the reason, in one line.
    """
    manager, prefix = _manager()
    ready, install = INSTALLERS[manager]
    if ready:
        _run(prefix + ready)
    *preferred, last = packages or PACKAGES.get(manager, ("chromium",))
    for package in preferred:
        with suppress(RuntimeError):
            return _installed([*prefix, *install, package])
    return _installed([*prefix, *install, last])


def _installed(command: list[str]) -> Path:
    print("Installing Chromium:", " ".join(command), flush=True)
    _run(command)
    found = find_browser()
    if found is None:
        raise RuntimeError("the package was installed, but brought no browser")
    return found


def _found() -> Path:
    """The browser that is here or can be had; with `--shell` the headless shell before others.

    Raises:
        RuntimeError: with the reason, in one line.
    """
    found = find_browser()
    if found and "--shell" in sys.argv and found.name != SHELL:
        with suppress(RuntimeError):
            return install_browser([SHELL])
    return found or install_browser()


def main() -> int:
    """Find or install the browser, and say which."""
    try:
        print(f"Browser: {_found()}")
    except RuntimeError as error:
        print(NONE_HERE.format(reason=error), file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
