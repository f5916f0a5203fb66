"""Write `pins.txt`, the exact version of every package that is installed: `make locks`.

`install.py` holds pip to these versions, whatever purpose it installs. What torch brings along
differs by machine (CUDA or none), so its accelerator packages are left for pip to choose, and its
version is written without the local part, `+cpu` or `+cu128`. A package that refuses the oldest
Python that the project takes has to be bounded in `pyproject.toml`: a test finds it.
"""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

from packaging.utils import canonicalize_name

LEFT_OUT = ("nvidia-", "cuda-", "triton", "pytorch-triton", "pip", "proofbook")


def main() -> None:
    """Write the file."""
    found = {
        canonicalize_name(one.name): one.version.partition("+")[0]
        for one in importlib.metadata.distributions()
    }
    lines = ["# Written by `make locks`; the reasons stand in CONTRIBUTING.md."]
    lines += [f"{n}=={found[n]}" for n in sorted(found) if not n.startswith(LEFT_OUT)]
    Path(__file__).with_name("pins.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
