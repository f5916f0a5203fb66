"""What this machine is, under which circumstances it measures, and its folder of traces.

The folder's name carries a local id kept in an untracked file, so a fresh clone always measures for
itself and the committed reference folder stays as it is. What the id stands for is in
`identity.py`. Ranks that may use a part of the machine only, fewer cores than are installed or
fewer devices, measure into a folder below it: `cpu-2c-1a2b3c/1-of-2-cores`. That part is described
by a `machine.json` of its own, whose `name` holds both folders.
"""

from __future__ import annotations

import os
import platform
import re
import secrets
from collections.abc import Sequence
from functools import cache
from importlib import metadata
from pathlib import Path

from runners.system import accelerator
from runners.system.errors import FixableError
from runners.traces.files import write_json, write_text
from runners.traces.identity import Identity, id_among, kept_ids
from runners.traces.machine_records import Accelerator, Machine
from runners.traces.records import Circumstances
from runners.traces.topology import installed_accelerators, libraries, num_installed_cores, topology

ROOT = Path(__file__).resolve().parents[2]
# Where commands write: in a clone, or in the current folder where the package was installed.
HOME = ROOT if (ROOT / "pyproject.toml").is_file() else Path.cwd()
# Elsewhere only for tests, and for measuring without touching the book.
TRACES = Path(os.environ.get("PROOFBOOK_TRACES", HOME / "content" / "traces"))
LOCAL_ID = HOME / ".machine.json"
THIS_MACHINE = TRACES / "this-machine"
NOT_MEASURED_YET = "new"  # stands for the id of a machine that has none yet


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
    found = _stated(Path("/proc/meminfo"), "MemAvailable")
    return int(found.split()[0]) * 1024 if found else None


def cpu_name() -> str:
    """The processor as the operating system names it."""
    named = _stated(Path("/proc/cpuinfo"), "model name")
    return named or platform.processor() or platform.machine()


def _stated(path: Path, name: str) -> str | None:
    """What the first line of this name in a file of the kernel says; None without one."""
    try:
        found = re.search(rf"^{name}\s*:(.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        return None
    return found.group(1).strip() if found else None


@cache
def identity() -> Identity:
    """What this machine is made of, whatever of it a process may use."""
    installed = installed_accelerators() or [one.name for one in accelerators()]
    num_listed = num_installed_cores() or os.cpu_count() or 1
    return Identity(cpu_name(), memory_bytes(), max(num_listed, num_cores()), tuple(installed))


@cache
def circumstances() -> Circumstances:
    """Under what this process measures."""
    return Circumstances(
        python=platform.python_version(),
        torch=torch_version(),
        affinity=_ranges(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        visible_devices=os.environ.get("CUDA_VISIBLE_DEVICES"),
        huge_pages=_huge_pages(),
    )


def torch_version() -> str:
    """The torch that would measure now, which is not loaded for this."""
    return metadata.version("torch")


def _ranges(cores: set[int]) -> str:
    """Numbers as the kernel lists them: `0-3,8`."""
    parts: list[list[int]] = []
    for core in sorted(cores):
        if parts and core == parts[-1][-1] + 1:
            parts[-1].append(core)
        else:
            parts.append([core])
    return ",".join(f"{one[0]}-{one[-1]}" if len(one) > 1 else f"{one[0]}" for one in parts)


def _huge_pages(path: Path = Path("/sys/kernel/mm/transparent_hugepage/enabled")) -> str | None:
    """The choice that stands in brackets: `always [madvise] never`."""
    try:
        chosen = re.search(r"\[(\w+)\]", path.read_text(encoding="ascii"))
    except OSError:
        return None
    return chosen.group(1) if chosen else None


def accelerators() -> list[Accelerator]:
    """The CUDA devices that ranks get.

    Raises:
        FixableError: there is one, and torch cannot use it.
    """
    return [Accelerator(name=n, memory_bytes=size) for n, size in accelerator.described()]


def num_places(device: str) -> int:
    """Ranks that can compute at once, each on a core or an accelerator of its own."""
    return accelerator.num_devices() if device == "cuda" else num_cores()


def can_limit_memory() -> str | None:
    """Why this platform cannot enforce a budget; None where it can."""
    if accelerator.kind() == "cuda" or platform.system() == "Linux":
        return None
    return f"{platform.system()} does not let a process limit its own data segment"


def _kind(here: Identity) -> str:
    if here.accelerators:
        model = here.accelerators[0].lower().replace("nvidia", "").split()
        return f"{len(here.accelerators)}x-{'-'.join(model)}"
    return f"cpu-{here.num_cores}c"


def _part(here: Identity, visible: Sequence[Accelerator]) -> str:
    """Which part of the machine ranks may use, as the name of a folder; empty where it is whole."""
    counts = (
        (num_cores(), here.num_cores, "cores"),
        (len(visible), len(here.accelerators), "devices"),
    )
    return "-and-".join(f"{few}-of-{all_}-{what}" for few, all_, what in counts if few < all_)


def name(*, as_reference: bool = False) -> str:
    """The name of this machine, which is that of its folder; as `describe`, and without torch."""
    here = identity()
    part = _part(here, accelerators())
    if as_reference:
        if part:
            raise FixableError(
                f"the reference folder is measured with a whole machine, and ranks may use only "
                f"{part.replace('-', ' ')}; lift the limit (taskset, CUDA_VISIBLE_DEVICES), or "
                "leave out --as-reference"
            )
        return f"reference-{_kind(here)}"
    whole = f"{_kind(here)}-{id_among(kept_ids(LOCAL_ID), here) or NOT_MEASURED_YET}"
    return f"{whole}/{part}" if part else whole


@cache
def describe(*, as_reference: bool = False) -> Machine:
    """This machine, named by its local id or, on demand, as the reference machine.

    Nothing is written: the id of a machine that has none yet is kept by `keep_id`, and until then
    `new` stands in its place.

    Raises:
        FixableError: the file of local ids cannot be read; or it is described as the reference
            machine, and ranks may use a part only.
    """
    here = identity()
    return Machine(
        schema_version=1,
        name=name(as_reference=as_reference),
        fingerprint=here.fingerprints()[0],
        is_reference=as_reference,
        cpu=here.cpu,
        num_cores=num_cores(),
        num_installed_cores=here.num_cores,
        memory_bytes=here.memory_bytes,
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        torch=torch_version(),
        accelerators=accelerators(),
        topology=topology(),
        libraries=libraries(),
    )


def keep_id() -> None:
    """Keep an id for this machine, which is about to measure; an id that it has stays.

    Raises:
        FixableError: the file of local ids cannot be read.
        OSError: the disk refused; the file is then as it was.
    """
    here = identity()
    kept = kept_ids(LOCAL_ID)
    known = {**kept, here.fingerprints()[0]: id_among(kept, here) or secrets.token_hex(3)}
    if kept != known:
        write_json(LOCAL_ID, known)
        describe.cache_clear()


def references() -> list[Path]:
    """Folders of reference machines: beside this machine's, or those that came with the package."""
    shipped = ROOT / "content" / "traces" if HOME != ROOT else TRACES
    return sorted(TRACES.glob("reference-*")) or sorted(shipped.glob("reference-*"))


def name_of(folder: Path) -> str:
    """The name of the machine whose folder this is."""
    return folder.relative_to(TRACES).as_posix() if folder.is_relative_to(TRACES) else folder.name


def shown(path: Path) -> Path:
    """A path as a person reads it: from where commands write, where it lies in it."""
    return path.relative_to(HOME) if path.is_relative_to(HOME) else path


def remember(name: str) -> None:
    """Note whose traces the pages show first; the note is the old one or the new one, never torn.

    Raises:
        OSError: the disk refused.
    """
    note = f"{name}\n"
    if not THIS_MACHINE.exists() or THIS_MACHINE.read_text(encoding="utf-8") != note:
        write_text(THIS_MACHINE, note)
