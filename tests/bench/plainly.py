"""Start a plain script under torchrun, wait for it, and end it where it never would."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from tests.conftest import ROOT

PATIENCE = 180  # seconds; the longest run takes a few


class PlainError(RuntimeError):
    """A plain script failed, or did not end in time; the message says what it wrote last."""


def plainly(
    num_ranks: int, script: Sequence[str], environment: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Run a script with its arguments in ranks of torchrun's.

    Args:
        num_ranks: how many.
        script: its path and its arguments.
        environment: variables beside this process's own.

    Returns:
        What the ranks printed.

    Raises:
        PlainError: it failed, or did not end in time.
    """
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    process = subprocess.Popen(
        [*torchrun, f"--nproc-per-node={num_ranks}", *script],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        printed, complaint = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        raise PlainError(f"not at its end after {PATIENCE} s") from None
    finally:
        if process.poll() is None:
            process.terminate()  # torchrun then ends its ranks
            process.communicate()
    if process.returncode:
        lines = [line for line in complaint.splitlines() if "Error" in line]
        raise PlainError((lines or complaint.splitlines() or ["without a word"])[0][:300])
    return printed
