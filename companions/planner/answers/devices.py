"""Devices that `plan --gpu` knows by name, with their memory and rates. No torch.

In: a name as people write it, such as `RTX 4090` or `a100-80gb`. Out: a `Gpu`.
"""

import re
from functools import cache

import yaml

from proofbook.companions.planner.answers.architecture import PRESETS
from proofbook.runners.core.trace.schema import Record
from proofbook.runners.system.errors import FixableError, unknown

# What a name may have, as nvidia-smi prints it, and what tells no two devices apart.
_NO_MATTER = re.compile(
    r"nvidia|geforce|tesla|quadro|amd|instinct|generation|rtx|gtx|sxm\d?|hbm\d?e?"
    r"|(?<=\d)\s*gi?b|\s|_|-"
)


class Gpu(Record):
    """A device, as `content/planner/devices.yml` describes it."""

    title: str
    memory_mib: int  # as nvidia-smi reports it
    flops: float  # of products in 16 bits in a second, at the highest rate
    within: float  # bytes that it sends in a second within its node
    between: float  # bytes that a node of such devices sends in a second to others
    has_bf16: bool = True
    source: str


@cache
def gpus() -> dict[str, Gpu]:
    """All devices by their names."""
    document = yaml.safe_load(PRESETS.with_name("devices.yml").read_text(encoding="utf-8"))
    return {name: Gpu.model_validate(fields) for name, fields in document["devices"].items()}


def gpu_of(text: str) -> Gpu:
    """The device of a name; a FixableError lists those that are known."""
    wanted, known = _plain(text), gpus()
    for name, gpu in known.items():
        base, link = name.partition("-")[0], "pcie" * ("PCIe" in gpu.title)
        size = round(gpu.memory_mib / 1024 / 8) * 8  # 81,559 MiB are sold as 80 GB
        names = {_plain(name), f"{base}{size}{link}", f"{base}{link}{size}"}
        if wanted in names | {_plain(gpu.title)}:
            return gpu
    own = "of another, name --memory, --flops and --links, and no --gpu"
    raise FixableError(f"{unknown('device', text, known)}; {own}")


def _plain(text: str) -> str:
    return _NO_MATTER.sub("", text.casefold())
