"""Traces of schema version 1: read as version 2, remembered as old, and refused as evidence."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from runners.measuring.pending import staleness
from runners.traces.files import NOT_TRACES, is_stale, read, write
from runners.traces.records import Trace
from runners.traces.upgrade import TRACE_STEPS, TRACE_VERSION, VersionError, upgraded

FROZEN = Path("tests/book/content/traces/reference-frozen")
FAILURE = {
    "kind": "out_of_memory", "message": "refused", "asked_bytes": 7, "rank": 0,
    "phase": "backward", "step": 1,
}  # fmt: skip
NEW_FAILURE = {**{k: v for k, v in FAILURE.items() if k != "asked_bytes"}, "requested_bytes": 7}


def as_version_1(document: dict[str, Any]) -> dict[str, Any]:
    """A trace as version 1 wrote it: the way back, written out by hand."""
    old = copy.deepcopy(document)
    under = old.pop("circumstances")
    old |= {"schema_version": 1, "software": {k: under[k] for k in ("python", "torch")}}
    for run in old["runs"].values():
        for failure in (run["error"], *(rank["failure"] for rank in run["ranks"])):
            if failure:
                failure["asked_bytes"] = failure.pop("requested_bytes")
        if run["validation"]:
            run["validation"]["num_rows"] = run["validation"].pop("num_samples")
        for move in (move for stage in run["stages"] for move in stage.get("moves", [])):
            move["target"] = move.pop("destination")
    return old


@pytest.fixture(params=["tiny_memory", "tiny_training"])
def present(request: pytest.FixtureRequest, root: Path) -> dict[str, Any]:
    """A trace of the frozen book as JSON."""
    return json.loads((root / FROZEN / f"{request.param}.json").read_text())  # type: ignore[no-any-return]


def test_version_1_read_as_version_2_is_what_version_2_wrote(present: dict[str, Any]) -> None:
    old = as_version_1(present)
    before = copy.deepcopy(old)
    found, version = upgraded(old, TRACE_STEPS, TRACE_VERSION)
    assert version == 1
    assert old == before  # nothing changes in place
    unknown = {"affinity": None, "visible_devices": None, "huge_pages": None}
    assert found == {**present, "circumstances": {**old["software"], **unknown}}


def test_each_renamed_field_is_found_where_it_stands() -> None:
    move = {"operation": "send", "source": 0, "target": 1, "bytes": 4}
    run = {
        "error": FAILURE,
        "validation": {"rank": 0, "num_rows": 9},
        "stages": [{"name": "a"}, {"name": "b", "moves": [move]}],
        "ranks": [{"rank": 0, "failure": FAILURE}, {"rank": 1, "failure": None}],
        "settings": {"num_rows": 3, "target": 1, "asked_bytes": 2},
    }
    old = {"schema_version": 1, "software": {"python": "3", "torch": "2"}, "runs": {"one": run}}
    found = upgraded(old, TRACE_STEPS, TRACE_VERSION)[0]["runs"]["one"]
    assert found["error"] == found["ranks"][0]["failure"] == NEW_FAILURE
    assert found["ranks"][1]["failure"] is None
    assert found["validation"] == {"rank": 0, "num_samples": 9}
    assert found["stages"][1]["moves"] == [
        {"operation": "send", "source": 0, "destination": 1, "bytes": 4}
    ]
    assert found["settings"] == run["settings"]  # settings keep the names of their experiment


def test_circumstances_that_were_recorded_stay() -> None:
    under = {"python": "3", "torch": "2", "affinity": "0-1"}
    old = {"schema_version": 1, "software": {}, "circumstances": under, "runs": {}}
    assert upgraded(old, TRACE_STEPS, TRACE_VERSION)[0]["circumstances"] == under


def test_a_document_of_the_present_version_is_returned_as_it_is(present: dict[str, Any]) -> None:
    assert upgraded(present, TRACE_STEPS, TRACE_VERSION) == (present, TRACE_VERSION)


def test_there_is_a_step_from_every_version_to_the_next() -> None:
    assert sorted(TRACE_STEPS) == list(range(1, TRACE_VERSION))
    with pytest.raises(VersionError, match="schema_version 0 is unknown"):
        upgraded({"schema_version": 0}, TRACE_STEPS, TRACE_VERSION)


@pytest.fixture
def old_trace(tmp_path: Path, root: Path) -> Trace:
    """A trace that version 1 wrote."""
    document = as_version_1(json.loads((root / FROZEN / "tiny_memory.json").read_text()))
    path = tmp_path / "tiny_memory.json"
    path.write_text(json.dumps(document))
    return read(path)


def test_a_trace_remembers_the_version_of_its_file_and_never_writes_it(
    old_trace: Trace, tmp_path: Path
) -> None:
    assert (old_trace.schema_version, old_trace.recorded_as) == (2, 1)
    assert old_trace.model_copy().recorded_as == 1
    assert "recorded_as" not in json.dumps(old_trace.model_dump(mode="json"))
    write(tmp_path / "tiny_memory.json", old_trace)
    assert read(tmp_path / "tiny_memory.json").recorded_as == 2


def test_a_trace_of_version_1_is_stale_whatever_code_measured_it(old_trace: Trace) -> None:
    assert is_stale(old_trace)
    assert staleness(old_trace) == "stale, of schema version 1"


def test_every_committed_trace_can_be_read(root: Path) -> None:
    folder = root / "content" / "traces"
    paths = [p for p in folder.glob("reference-*/*.json") if p.stem not in NOT_TRACES]
    assert paths
    assert {read(path).recorded_as for path in paths} <= {1, TRACE_VERSION}
