"""What this machine is, and the name of its folder of traces.

The name carries a local id kept in an untracked file, so a fresh clone always measures for itself
and the committed reference folder stays as it is.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import secrets
from functools import cache
from pathlib import Path

from runners.topology import libraries, topology
from runners.trace import Accelerator, Machine, write_json

ROOT = Path(__file__).resolve().parent.parent
# Elsewhere only for tests, and for measuring without touching the book.
TRACES = Path(os.environ.get("PROOFBOOK_TRACES", ROOT / "content" / "traces"))
LOCAL_ID = ROOT / ".machine.json"
THIS_MACHINE = TRACES / "this-machine"


def num_cores() -> int:
    """Cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_bytes() -> int:
    """Bytes of main memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def available_bytes() -> int | None:
    """Bytes of main memory that nothing uses now; None where the kernel does not say."""
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None


def cpu_name() -> str:
    """The processor as the operating system names it."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def accelerators() -> list[Accelerator]:
    """The CUDA devices torch can see."""
    import torch

    return [
        Accelerator(
            name=torch.cuda.get_device_properties(i).name,
            memory_bytes=torch.cuda.get_device_properties(i).total_memory,
        )
        for i in range(torch.cuda.device_count())
    ]


def device_kind() -> str:
    """Say `cuda` where torch sees an accelerator, `cpu` everywhere else."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def can_limit_memory() -> str | None:
    """Why this platform cannot enforce a budget; None where it can."""
    if device_kind() == "cuda" or platform.system() == "Linux":
        return None
    return f"{platform.system()} does not let a process limit its own data segment"


def _kind() -> str:
    found = accelerators()
    if found:
        model = found[0].name.lower().replace("nvidia", "").split()
        return f"{len(found)}x-{'-'.join(model)}"
    return f"cpu-{num_cores()}c"


@cache
def describe(*, as_reference: bool = False) -> Machine:
    """This machine, named by its local id or, on demand, as the reference machine."""
    import torch

    facts = {
        "cpu": cpu_name(),
        "num_cores": num_cores(),
        "memory_bytes": memory_bytes(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "accelerators": [a.model_dump() for a in accelerators()],
    }
    fingerprint = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
    kind = _kind()
    name = f"reference-{kind}" if as_reference else f"{kind}-{_local_id(fingerprint)}"
    return Machine.model_validate(
        {
            "schema_version": 1,
            "name": name,
            "fingerprint": fingerprint,
            "is_reference": as_reference,
            "topology": topology().model_dump(),
            "libraries": libraries(),
            **facts,
        }
    )


def _local_id(fingerprint: str) -> str:
    """Six characters for this machine and this clone; new ones when the machine is another."""
    try:
        kept = json.loads(LOCAL_ID.read_text(encoding="utf-8"))
        if kept["fingerprint"] == fingerprint:
            return str(kept["id"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    local_id = secrets.token_hex(3)
    write_json(LOCAL_ID, {"fingerprint": fingerprint, "id": local_id})
    return local_id
