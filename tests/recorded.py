"""Make a run that a test has changed one that the recorder could have written.

In: a run of a trace as plain JSON. Out: the same run in place, with what follows from its status,
its peaks and its samples, so that reading it meets no contradiction. `write` puts a file of a
machine's folder on disk, with the digest of all that it holds.
"""

import json
from pathlib import Path
from typing import Any

from proofbook.runners.core.trace.measured import SampledSeconds
from proofbook.runners.core.trace.records import Run
from proofbook.runners.core.trace.schema import digest_of

RECORDED = ("ranks", "stages", "epochs", "step_losses", "passes", "prediction", "printed")


def write(path: Path, document: dict[str, Any]) -> None:
    """Write a trace, or a machine, as `sealed`."""
    path.write_text(sealed(json.dumps(document)), "utf-8")


def sealed(text: str) -> str:
    """The text of a file of a machine's folder, with the digest of all else in it."""
    held = json.loads(text)
    held.pop("values", None)
    return json.dumps(held | {"values": digest_of(held)})


def as_recorded(run: dict[str, Any]) -> None:
    """Change what contradicts the status of a run, its ranks' peaks, and its samples."""
    run.update(Run.model_validate(run).model_dump(mode="json"))  # with what a trace leaves out
    timing = run["timing"]
    if run["status"] == "skipped":
        run.update({name: [] for name in RECORDED})
        run.update(error=None, reason=run["reason"] or "not here")
        timing.update(stages={}, prediction={}, step=None)
        return
    run["reason"] = None
    for rank in range(len(run["ranks"]), run["world_size"]):
        run["ranks"].append({"rank": rank, "status": "completed", "collectives": []})
    if run["status"] in ("completed", "diverged"):
        run["error"] = None
    elif run["error"] is None or not any(r["failure"] == run["error"] for r in run["ranks"]):
        run["error"] = run["error"] or _failure(run["status"])
        if run["error"]["kind"] != "hang":  # which is the failure of no rank alone
            run["error"] = {**run["error"], "rank": 0}
            run["ranks"][0]["failure"] = run["error"]
    for rank in run["ranks"]:
        rank["failure"] = rank.get("failure") if run["error"] else None
        rank["status"] = run["status"] if rank["failure"] else "completed"
        _settle_memory(rank.get("memory"))
    for times in filter(None, (timing["step"], *timing.get("measures", {}).values())):
        times.update(SampledSeconds.of(times["samples"]).model_dump())


def _failure(status: str) -> dict[str, Any]:
    kinds = {"out_of_memory": "out_of_memory", "died": "signal", "deadlocked": "hang"}
    return {
        "kind": kinds.get(status, "exception"),
        "message": "made up by a test",
        "rank": None,
        "requested_bytes": None,
        "phase": "forward",
        "step": 0,
    }


def _settle_memory(memory: dict[str, Any] | None) -> None:
    """Let the classes of a rank follow its peak."""
    if memory is None or memory["peak_bytes"] is None:
        return
    peak, classes = memory["peak_bytes"], memory["at_peak"]
    if sum(classes.values()) != peak:
        memory["at_peak"] = {**dict.fromkeys(classes, 0), "activations_bytes": peak}
