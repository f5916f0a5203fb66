"""Devices that `plan --gpu` knows by name, with their memory and rates. No torch.

In: a name as people write it, such as `RTX 4090` or `a100-80gb`. Out: a `Gpu`.
"""

import re
from functools import cache

import yaml

from proofbook.companions.planner.answers.architecture import PRESETS
from proofbook.runners.core.trace.schema import Record
from proofbook.runners.system.errors import unknown

_MAKERS = re.compile(r"nvidia|geforce|tesla|quadro|rtx|gtx|sxm\d?|pcie|\s|_|-")


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
        size = f"{round(gpu.memory_mib / 1000 / 8) * 8}gb"  # 81,559 MiB are sold as 80 GB
        if wanted in (_plain(name), _plain(gpu.title), _plain(name.partition("-")[0]) + size):
            return gpu
    raise unknown("device", text, known)


def _plain(text: str) -> str:
    return _MAKERS.sub("", text.casefold())
