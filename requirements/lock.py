"""Write the pinned requirements from what is installed: `make locks`.

Reads the direct dependencies in `pyproject.toml` and follows what each installed package asks for.
Writes one file a purpose beside this one: `pages.txt` (the book from committed traces; no torch),
`run.txt` (adds what experiments need) and `test.txt` (adds what tests and checks need). Each takes
in the one before it.

Exits 2 with one line where a package refuses the oldest Python that the project takes.

What torch brings along differs by machine (CUDA or none), so its accelerator packages are left for
pip to choose, and its version is written without the local part, `+cpu` or `+cu128`.
"""

from __future__ import annotations

import importlib.metadata
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

HERE = Path(__file__).resolve().parent
ACCELERATOR = ("nvidia-", "cuda-", "triton", "pytorch-triton")
BUILDS_THE_PACKAGE = ["setuptools"]


def closure(names: list[str]) -> dict[str, str]:
    """Version by package: `names` and all they need on this machine."""
    found: dict[str, str] = {}
    waiting = [Requirement(name) for name in names]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name in found or name.startswith(ACCELERATOR):
            continue
        package = importlib.metadata.distribution(name)
        found[name] = package.version.partition("+")[0]
        for line in package.requires or []:
            needed = Requirement(line)
            extras = requirement.extras or {""}
            if not needed.marker or any(needed.marker.evaluate({"extra": e}) for e in extras):
                waiting.append(needed)
    return found


def refuse_newer(pins: dict[str, str], oldest: str) -> None:
    """Refuse packages that the Python `oldest`, such as "3.11.0", cannot install."""
    for name, version in pins.items():
        asked = importlib.metadata.metadata(name).get("Requires-Python")
        if asked and oldest not in SpecifierSet(asked):
            print(
                f"proofbook: {name} {version} needs Python {asked}, the project takes {oldest}; "
                "bound it in pyproject.toml, install it anew, and repeat make locks",
                file=sys.stderr,
            )
            sys.exit(2)


def write(name: str, builds_on: str | None, pins: dict[str, str]) -> None:
    """One requirements file; `builds_on` is the file that it takes in."""
    lines = ["# Written by `make locks`; the reasons stand in CONTRIBUTING.md."]
    if builds_on:
        lines.append(f"-r {builds_on}.txt")
    lines += [f"{package}=={version}" for package, version in sorted(pins.items())]
    (HERE / f"{name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"requirements/{name}.txt: {len(pins)} packages")


def main() -> None:
    """Write the three files."""
    project = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    pages = closure(project["dependencies"] + BUILDS_THE_PACKAGE)
    run = closure(extras["run"])
    test = closure(extras["test"])
    refuse_newer(pages | run | test, project["requires-python"].removeprefix(">=") + ".0")
    write("pages", None, pages)
    write("run", "pages", {k: v for k, v in run.items() if k not in pages})
    write("test", "run", {k: v for k, v in test.items() if k not in pages | run})


if __name__ == "__main__":
    main()
