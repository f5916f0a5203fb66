"""This machine: its hardware, the circumstances under which it measures, its folder of traces.

A machine is its processor, and the cores and accelerators that ranks may use; nothing else that a
person changes from one command to the next. `.machine.json`, which git ignores, maps each machine
that this clone has met to an id of six characters, which ends the name of its folder: a fresh clone
always measures for itself, and the committed reference folder stays as it is. Ranks that may use
fewer cores or devices, under `taskset` or `CUDA_VISIBLE_DEVICES`, are another machine.
"""

import os
import platform
import re
import secrets
from functools import cache
from importlib import metadata
from pathlib import Path

from pydantic import TypeAdapter

from proofbook.runners.core.system import accelerator
from proofbook.runners.core.trace.records import Accelerator, Circumstances, Machine
from proofbook.runners.system.book import ROOT, own_book
from proofbook.runners.system.errors import FixableError, unknown
from proofbook.runners.system.files import write_json, write_text

# Where commands write: in a clone, or in the current folder where the package was installed.
HOME = ROOT if (ROOT / "pyproject.toml").is_file() else Path.cwd()
# Elsewhere only for tests, and for measuring without touching the book.
TRACES = Path(os.environ.get("PROOFBOOK_TRACES", (own_book() or HOME) / "content" / "traces"))
LOCAL_ID = HOME / ".machine.json"
THIS_MACHINE = TRACES / "this-machine"
NOT_MEASURED_YET = "new"  # stands for the id of a machine that has none yet
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


def num_cores() -> int:
    """Cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_bytes() -> int:
    """Bytes of main memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def available_bytes() -> int | None:
    """Bytes of main memory that are free now; None where the kernel does not say."""
    kibibytes = _stated("/proc/meminfo", r"^MemAvailable:\s*(\d+)")
    return int(kibibytes) * 1024 if kibibytes else None


def cpu_name() -> str:
    """The processor as the operating system names it."""
    named = _stated("/proc/cpuinfo", r"^model name\s*:\s*(.*)$")
    return named or platform.processor() or platform.machine()


def _stated(path: str, pattern: str) -> str | None:
    """The group of a pattern where it first matches in a file of the kernel; None without one."""
    try:
        match = re.search(pattern, Path(path).read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        return None
    return match.group(1).strip() if match else None


def caches() -> str:
    """Size and type of each cache of the first core, as text; empty where the kernel shows none.

    Processors of several generations may have one name, and other caches.
    """
    try:
        return ", ".join(
            " ".join((cache / name).read_text().strip() for name in ("size", "type"))
            for cache in sorted(CACHES.glob("index[0-9]*"))
        )
    except OSError:
        return ""


def circumstances() -> Circumstances:
    """`Circumstances`: releases of Python, torch, NumPy; cores, visible devices, huge pages."""
    return Circumstances(
        python=platform.python_version(),
        torch=installed("torch"),
        numpy=installed("numpy") or None,
        affinity=_stated("/proc/self/status", r"^Cpus_allowed_list:\s*(.*)$"),
        visible_devices=os.environ.get("CUDA_VISIBLE_DEVICES"),
        huge_pages=_stated("/sys/kernel/mm/transparent_hugepage/enabled", r"\[(\w+)\]"),
    )


@cache
def installed(package: str) -> str:
    """The installed release of a package, which is not loaded; empty where there is none."""
    return next((release.version for release in metadata.distributions(name=package)), "")


def pinned(package: str) -> str:
    """The release that set-up installs; empty in a book of one's own, and outside a clone."""
    files = () if own_book() else (ROOT / "requirements" / "run.txt", ROOT / "pyproject.toml")
    text = "\n".join(path.read_text(encoding="utf-8") for path in files if path.is_file())
    return "".join(re.findall(rf"\b{package}==([\w.]+)", text)[:1])


def accelerators() -> list[Accelerator]:
    """The CUDA devices that ranks get."""
    return [Accelerator(name=n, memory_bytes=size) for n, size in accelerator.described()]


def num_places(device: str) -> int:
    """Ranks that can compute at once, each on a core or an accelerator of its own."""
    return accelerator.num_devices() if device == "cuda" else num_cores()


def can_limit_memory() -> str | None:
    """Why this platform cannot enforce a budget; None where it can."""
    if accelerator.kind() == "cuda" or platform.system() == "Linux":
        return None
    return f"{platform.system()} does not let a process limit its own data segment"


def _kept_ids() -> dict[str, str]:
    """The id of each machine that this clone has met, by `_known_as`."""
    try:
        return TypeAdapter(dict[str, str]).validate_json(LOCAL_ID.read_bytes())
    except FileNotFoundError:
        return {}
    except ValueError:
        raise FixableError(
            f"{LOCAL_ID}: does not map machines to ids; correct it, or delete it to measure into "
            "new folders"
        ) from None


def _known_as() -> str:
    """Processor, cores and accelerators in words: with others, this is another machine."""
    devices = ", ".join(device.name for device in accelerators()) or "no accelerator"
    return f"{cpu_name()}, {num_cores()} cores, {devices}"


def name(*, as_reference: bool = False) -> str:
    """This machine's name and folder: `cpu-8c-3f2a1c`, by kind and id, or `reference-cpu-8c`.

    Nothing is written: until `keep_id` has created the id, `new` stands in its place.
    """
    kind = f"cpu-{num_cores()}c"
    if devices := accelerators():
        model = re.findall(r"[a-z0-9.]+", devices[0].name.lower().replace("nvidia", ""))
        kind = f"{len(devices)}x-{'-'.join(model)}"
    if as_reference:
        return f"reference-{kind}"
    return f"{kind}-{_kept_ids().get(_known_as(), NOT_MEASURED_YET)}"


def describe(folder: str = "", torch: str = "") -> Machine:
    """A `Machine`: this one now, by default of the folder `name()` and the installed torch."""
    return Machine(
        schema_version=1, name=folder or name(), is_reference=folder.startswith("reference-"),
        cpu=cpu_name(), num_cores=num_cores(), caches=caches(), memory_bytes=memory_bytes(),
        system=f"{platform.system()} {platform.machine()}", python=platform.python_version(),
        torch=torch or installed("torch"), accelerators=accelerators(),
    )  # fmt: skip


def keep_id() -> None:
    """Create the id of this machine if it has none; OSError leaves the file as it was."""
    known = _kept_ids()
    if _known_as() not in known:
        write_json(LOCAL_ID, {**known, _known_as(): secrets.token_hex(3)})


def references() -> list[Path]:
    """The folders of reference machines: beside this machine's, else those of the code."""
    shipped = ROOT / "content" / "traces"
    return sorted(TRACES.glob("reference-*")) or sorted(shipped.glob("reference-*"))


def machine_folders(traces: Path) -> list[str]:
    """The names of the folders of traces, one of each machine."""
    return sorted(path.parent.name for path in traces.glob("*/machine.json"))


def folder_of(name: str | None) -> Path:
    """The folder of a machine's traces; for None, of the first reference; or FixableError."""
    if name is None:
        return references()[0]
    if name not in (known := machine_folders(TRACES)):
        raise unknown("machine", name, known)
    return TRACES / name


def from_home(path: Path) -> Path:
    """A path relative to the folder in which commands write, if it lies there."""
    return path.relative_to(HOME) if path.is_relative_to(HOME) else path


def remember(name: str) -> None:
    """Note the machine whose traces the pages show first; OSError where the disk refuses."""
    note = f"{name}\n"
    if not THIS_MACHINE.exists() or THIS_MACHINE.read_text(encoding="utf-8") != note:
        write_text(THIS_MACHINE, note)
