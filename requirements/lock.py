"""Write the pinned requirements from what is installed: `make locks`.

Reads the direct dependencies in `pyproject.toml` and follows what each installed package asks for.
Writes one file a purpose beside this one: `pages.txt` (the book from committed traces; no torch),
`run.txt` (adds what experiments need) and `test.txt` (adds what tests and checks need). Each takes
in the one before it.

A package that refuses the oldest Python that the project takes has to be bounded in
`pyproject.toml`: a test finds it.

What torch brings along differs by machine (CUDA or none), so its accelerator packages are left for
pip to choose, and its version is written without the local part, `+cpu` or `+cu128`.
"""

from __future__ import annotations

import importlib.metadata
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
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
    write("pages", None, pages)
    write("run", "pages", {k: v for k, v in run.items() if k not in pages})
    write("test", "run", {k: v for k, v in test.items() if k not in pages | run})


if __name__ == "__main__":
    main()
