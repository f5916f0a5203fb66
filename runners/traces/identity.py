"""Which machine this is: what it is made of, and the local id that is kept for it.

An identity is the processor, the memory, the installed cores and the accelerators; nothing that a
person changes from one command to the next. `.machine.json`, which git ignores, maps the
fingerprint of each identity that this clone has met to an id of six characters. An id is never
removed, so a machine that gets more memory and loses it again finds its folder. No torch.
"""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import NamedTuple

from pydantic import TypeAdapter

from runners.system.errors import FixableError

# Kernels keep some memory for themselves, and another kernel keeps more or less of it. Two sizes
# within one step are always the same machine; sizes that are two steps apart never are.
MEMORY_STEP = 1.02


class Identity(NamedTuple):
    """What makes a machine another one."""

    cpu: str
    memory_bytes: int
    num_cores: int  # installed, whether or not a process may use them
    accelerators: tuple[str, ...]

    def fingerprints(self) -> list[str]:
        """Its own, sixteen hexadecimal digits, then those with a little less and more memory."""
        step = round(math.log(max(self.memory_bytes, 1)) / math.log(MEMORY_STEP))
        facts = [[self.cpu, step + by, self.num_cores, *self.accelerators] for by in (0, -1, 1)]
        return [hashlib.sha256(json.dumps(one).encode()).hexdigest()[:16] for one in facts]


def kept_ids(path: Path) -> dict[str, str]:
    """The ids in the file of local ids, by fingerprint; none where there is no file.

    Raises:
        FixableError: the file cannot be read.
    """
    try:
        return TypeAdapter(dict[str, str]).validate_json(path.read_bytes())
    except FileNotFoundError:
        return {}
    except ValueError:
        raise FixableError(
            f"{path}: does not map fingerprints to ids; correct it, or delete it to measure into "
            "new folders"
        ) from None


def id_among(kept: dict[str, str], here: Identity) -> str | None:
    """The id of this machine; None where none is kept."""
    return next((kept[one] for one in here.fingerprints() if one in kept), None)
