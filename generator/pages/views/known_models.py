"""Known models and devices with which a calculator begins.

In: the names of a calculator's inputs. Out: for each model that has all of them, what it is called
and its numbers. A model is trained in bf16 with Adam, whose masters and moments are in fp32; its
sizes are those of its plan, the rates of its devices are cited.
"""

import math
from collections.abc import Iterator

from generator.figures.step_rules import number
from generator.printing.folio import Folio
from runners.core.trace.schema import Setting

MODELS = (
    ("Llama 8B", "plan_llama_8b.fsdp_on_8"),
    ("Llama 13B", "plan_llama_13b.fsdp_on_16"),
    ("Llama 70B", "plan_llama_70b.fsdp_on_64"),
)
DEVICES = {"H100": ("h100-bf16", "connectx-7"), "A100": ("a100-bf16", "selene-hdr")}
PER_NODE = 8  # devices, and adapters
HALF, STATE = 2, 12  # bytes: of a number in bf16; of a master and two moments in fp32
OF_PROGRAM = {"reductions"}  # inputs that a model leaves as they are


def known_models(names: set[str], folio: Folio) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield label and `{input: number}` of each model that has all `names`; per device if timed."""
    is_timed = not names.isdisjoint(("flops", "rate"))
    for model, plan in MODELS:
        run = folio.evidence.book.run(plan)
        for device in DEVICES if is_timed else ("GPUs",):
            if run is None:
                continue
            inputs = _of_model(run.settings) | (_of_device(device, folio) if is_timed else {})
            if names - OF_PROGRAM <= inputs.keys():
                yield f"{model}, bf16, Adam, {inputs['ranks']:.0f} {device}", inputs


def _of_model(settings: dict[str, Setting]) -> dict[str, float]:
    """Sizes of a transformer whose embedding and head are the root, and its blocks the units."""
    total, ranks, layers, vocabulary, width = (
        number(settings[name])
        for name in ("num_parameters", "num_ranks", "num_layers", "vocabulary", "hidden_size")
    )
    root = 2 * vocabulary * width
    block = (total - root) / layers
    stage = math.ceil(layers / ranks) * block + root / 2  # with the embedding or the head
    return {
        "parameters": total, "ranks": ranks, "nodes": ranks / PER_NODE,
        "largest": root / total, "next": block / total, "excess": stage * ranks / total - 1,
        "value_bytes": HALF, "gathered": HALF, "reduced": HALF,
        "state_bytes": STATE, "moments": STATE / HALF, "stored": 2 * HALF + STATE,
    }  # fmt: skip


def _of_device(name: str, folio: Folio) -> dict[str, float]:
    """The specified rates of a device and of its node; empty where the book does not cite them."""
    known = folio.book.references
    flops, rate = (known[cited].value if cited in known else None for cited in DEVICES[name])
    return {"flops": flops, "rate": PER_NODE * rate} if flops and rate else {}
