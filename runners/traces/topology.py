"""How a machine is put together: sockets, threads, caches, memory nodes, links, libraries.

In: what the kernel shows under `/sys` (`root` is elsewhere in tests), `nvidia-smi topo -m` where
there are accelerators, and torch's own account of what it was built with. Out: a `Topology` and the
versions of libraries, for `machine.json`. What the system does not tell is left out, not guessed.
"""

from __future__ import annotations

import platform
import re
import subprocess
from pathlib import Path
from typing import Literal

from runners.traces.machine_records import AcceleratorLink, Cache, NumaNode, Topology

_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
CacheKind = Literal["data", "instruction", "unified"]
_KINDS: dict[str, CacheKind] = {
    "Data": "data", "Instruction": "instruction", "Unified": "unified",
}  # fmt: skip


def topology(root: Path = Path("/sys/devices/system"), links: str | None = None) -> Topology:
    """Describe this machine.

    Args:
        root: where the kernel shows processors and memory nodes.
        links: what `nvidia-smi topo -m` prints; asked of it where None.
    """
    cores = sorted((root / "cpu").glob("cpu[0-9]*"))
    placed = [_placed(core) for core in cores]
    known = [place for place in placed if place is not None]
    physical = len(set(known))
    return Topology(
        num_sockets=len({socket for socket, _ in known}) or None,
        num_physical_cores=physical or None,
        threads_per_core=len(known) // physical if physical else None,
        caches=_caches(cores),
        numa_nodes=_numa_nodes(root / "node"),
        links=_links(_nvidia_smi("topo", "-m") if links is None else links),
    )


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None


def _placed(core: Path) -> tuple[str, str] | None:
    """Socket and physical core of one logical processor."""
    socket = _read(core / "topology" / "physical_package_id")
    number = _read(core / "topology" / "core_id")
    return None if socket is None or number is None else (socket, number)


def _bytes(text: str) -> int:
    """The bytes in a size such as `32K` or `1024 kB`."""
    match = re.match(r"(\d+)\s*([KMGk]?)", text)
    if match is None:
        return 0
    return int(match.group(1)) * _UNITS.get(match.group(2).upper(), 1)


def _listed(text: str) -> set[int]:
    """The numbers in a list such as `0-3,8`."""
    numbers: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        numbers |= set(range(int(first), int(last or first) + 1))
    return numbers


def _caches(cores: list[Path]) -> list[Cache]:
    """Each kind of cache once, with how many there are and how many processors share one."""
    found: dict[tuple[int, CacheKind, int, int], set[str]] = {}
    for core in cores:
        for index in sorted((core / "cache").glob("index[0-9]*")):
            level, kind, size, shared = (
                _read(index / name) for name in ("level", "type", "size", "shared_cpu_list")
            )
            if level and kind in _KINDS and size and shared:
                key = (int(level), _KINDS[kind], _bytes(size), len(_listed(shared)))
                found.setdefault(key, set()).add(shared)
    return [
        Cache(level=level, kind=kind, bytes=size, num_caches=len(lists), num_sharing=sharing)
        for (level, kind, size, sharing), lists in sorted(found.items())
    ]


def _numa_nodes(folder: Path) -> list[NumaNode]:
    nodes = []
    for path in sorted(folder.glob("node[0-9]*"), key=lambda p: int(p.name[4:])):
        cores, memory = _read(path / "cpulist"), _read(path / "meminfo")
        total = re.search(r"MemTotal:\s*(\d+ kB)", memory or "")
        size = _bytes(total.group(1)) if total else None
        nodes.append(NumaNode(num_cores=len(_listed(cores or "")), memory_bytes=size))
    return nodes


def num_installed_cores(root: Path = Path("/sys/devices/system")) -> int | None:
    """Cores that the machine has, online or not; None where the kernel does not say."""
    present = _read(root / "cpu" / "present")
    return len(_listed(present)) if present else None


def installed_accelerators() -> list[str]:
    """The name of each NVIDIA device of this machine, whether or not torch may use it."""
    names = _nvidia_smi("--query-gpu=name", "--format=csv,noheader")
    return [line.strip() for line in names.splitlines() if line.strip()]


def _nvidia_smi(*arguments: str) -> str:
    """What `nvidia-smi` prints; nothing where there is none, or where it fails."""
    try:
        done = subprocess.run(
            ["nvidia-smi", *arguments], capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout


def _links(matrix: str) -> list[AcceleratorLink]:
    """The links between accelerators as nvidia-smi's matrix names them, each pair once."""
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in matrix.splitlines()]
    rows = [line.split() for line in lines if re.match(r"\s*GPU\d+\s+\S+", line)]
    table = {row[0]: row[1:] for row in rows if not re.fullmatch(r"GPU\d+", row[1])}
    count = len(table)
    return [
        AcceleratorLink(first=a, second=b, kind=table[f"GPU{a}"][b])
        for a in range(count)
        for b in range(a + 1, count)
        if len(table.get(f"GPU{a}", [])) > b
    ]


def libraries() -> dict[str, str]:
    """Versions of what torch computes and communicates with, by name."""
    import torch
    import torch.distributed as dist

    shown = torch.__config__.show()
    mkl = re.search(r"Math Kernel Library Version (\d[\d.]*)", shown)
    onednn = re.search(r"MKL-DNN v(\S+)", shown)
    libc, version = platform.libc_ver()
    found = {
        "mkl": mkl.group(1) if mkl else None,
        "onednn": onednn.group(1) if onednn else None,
        "gloo": f"of torch {torch.__version__}" if dist.is_gloo_available() else None,
        "cuda": torch.version.cuda,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())) if dist.is_nccl_available() else None,
        libc or "libc": version or None,
    }
    return {name: str(v) for name, v in found.items() if v}
