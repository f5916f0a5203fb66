"""A forecast precedes its trace in git history, on every committed machine.

The first commit with a forecast must be an ancestor of the first commit with the trace, or be the
same commit; then the times that the commands wrote into both files decide.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from runners.traces.files import NOT_TRACES

Order = Literal["before", "same commit", "after"]
ZERO, LATER, LAST = (f"2026-01-0{day}T00:00:00Z" for day in (1, 2, 3))


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout


Version = tuple[str, dict[str, Any]]


def _versions(path: Path) -> Iterator[Version]:
    """Each commit that changed a file, the latest first, with the document it left."""
    for commit in _git(path.parent, "log", "--format=%H", "--", path.name).split():
        try:
            text = _git(path.parent, "show", f"{commit}:./{path.name}")
        except subprocess.CalledProcessError:  # it was deleted there
            return
        yield commit, json.loads(text)


def _first(versions: Iterable[Version], *keys: str) -> str:
    """The first of the latest commits between which a value stayed as it is now."""
    first, now = "", object()
    for commit, document in versions:
        value: Any = document
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        if first and value != now:
            break
        first, now = commit, value
    return first


def orders(folder: Path) -> dict[str, Order]:
    """For each run that was forecast before it began: the order in history."""
    predictions = list(_versions(folder / "prediction.json"))
    if not predictions:
        return {}
    prediction = predictions[0][1]
    found: dict[str, Order] = {}
    for path in sorted(folder.glob("*.json")):
        versions = [] if path.stem in NOT_TRACES else list(_versions(path))
        if not versions:
            continue
        trace, measured = versions[0][1], _first(versions, "recorded_at")
        for name in (f"{path.stem}.{run}" for run in trace["runs"]):
            forecast = prediction.get("runs", {}).get(name)
            if forecast is None:
                continue
            if trace["recorded_at"] < (forecast.get("recorded_at") or prediction["recorded_at"]):
                continue  # it is listed, and not scored
            found[name] = _order(folder, _first(predictions, "runs", name), measured)
    return found


def _order(folder: Path, forecast: str, trace: str) -> Order:
    if forecast == trace:
        return "same commit"
    asked = ["git", "merge-base", "--is-ancestor", forecast, trace]
    return "before" if subprocess.run(asked, cwd=folder).returncode == 0 else "after"


# --- the committed machines


def test_no_scored_forecast_of_a_committed_machine_was_committed_after_its_trace(
    root: Path,
) -> None:
    try:
        is_shallow = _git(root, "rev-parse", "--is-shallow-repository").strip() == "true"
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no repository: its history cannot be seen")
    if is_shallow:
        pytest.skip("a shallow clone: its history cannot be seen")
    listed = _git(root, "ls-files", "content/traces/**/prediction.json").split()
    for path in listed:
        found = orders((root / path).parent)
        assert [name for name, order in found.items() if order == "after"] == []


# --- the check itself, on a repository of its own


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    _git(tmp_path, "init", "--quiet")
    machine = tmp_path / "machine"
    machine.mkdir()
    return machine


def _write(folder: Path, name: str, document: object) -> None:
    (folder / f"{name}.json").write_text(json.dumps(document))


def _predict(folder: Path, expected: float, at: str = ZERO) -> None:
    _write(folder, "prediction", {"recorded_at": at, "runs": {"a.run": {"peak_bytes": expected}}})


def _measure(folder: Path, at: str = LATER, **more: object) -> None:
    _write(folder, "a", {"recorded_at": at, "runs": {"run": more}})


def _commit(folder: Path) -> None:
    identity = ["-c", "user.name=Test", "-c", "user.email=test@example.org"]
    _git(folder, "add", "--all")
    _git(folder, *identity, "commit", "--quiet", "--allow-empty", "--message", "A state")


def test_a_forecast_that_was_committed_first_is_before(folder: Path) -> None:
    _predict(folder, 1.0)
    _commit(folder)
    _measure(folder)
    _commit(folder)
    assert orders(folder) == {"a.run": "before"}


def test_one_commit_with_both_says_nothing_and_leaves_it_to_the_times(folder: Path) -> None:
    _predict(folder, 1.0)
    _measure(folder)
    _commit(folder)
    assert orders(folder) == {"a.run": "same commit"}


def test_a_forecast_that_was_edited_after_its_trace_is_after(folder: Path) -> None:
    _predict(folder, 1.0)
    _commit(folder)
    _measure(folder)
    _commit(folder)
    _predict(folder, 2.0)
    _commit(folder)
    assert orders(folder) == {"a.run": "after"}


def test_a_forecast_that_admits_to_be_later_is_not_scored(folder: Path) -> None:
    _measure(folder)
    _commit(folder)
    _predict(folder, 2.0, at=LAST)
    _commit(folder)
    assert orders(folder) == {}


def test_a_trace_that_is_only_written_in_another_form_keeps_its_first_commit(folder: Path) -> None:
    _measure(folder)
    _commit(folder)
    _predict(folder, 1.0)
    _commit(folder)
    _measure(folder, named="otherwise")
    _commit(folder)
    assert orders(folder) == {"a.run": "after"}


def test_a_trace_that_was_measured_anew_starts_anew(folder: Path) -> None:
    _measure(folder)
    _commit(folder)
    _predict(folder, 1.0, at=LATER)
    _commit(folder)
    _measure(folder, at=LAST)
    _commit(folder)
    assert orders(folder) == {"a.run": "before"}


def test_what_is_not_committed_yet_is_not_judged(folder: Path) -> None:
    _predict(folder, 1.0)
    _commit(folder)
    _measure(folder)
    assert orders(folder) == {}
