"""What `run --dry` says: from the last trace here, else the reference's."""

import json

from runners.commands import run as running
from runners.commands.run import RunRequest
from tests.recorded import as_recorded, write


def _trace(root, folder, name, seconds):
    """A committed trace under another name, whose every run took so long."""
    folder.mkdir(parents=True, exist_ok=True)
    path = next((root / "content" / "traces").glob("reference-*/batch_split.json"))
    document = json.loads(path.read_text())
    run = document["runs"]["single"]
    run["timing"]["wall_seconds"] = seconds
    run["ranks"][0]["memory"]["peak_bytes"] = 5 << 20
    as_recorded(run)
    document |= {"experiment": name, "runs": {"light": run}, "machine": folder.name}
    write(folder / f"{name}.json", document)


def test_a_dry_run_says_a_line_an_experiment_and_one_for_all_and_starts_nothing(
    root, folder, tmp_path, monkeypatch
):
    """The last trace here tells, though it is stale."""
    monkeypatch.setattr(running, "Launcher", None)
    _trace(root, tmp_path / "reference-other", "heavier", 100.0)
    _trace(root, folder, "heavier", 7.0)
    first, whole = running.estimates(RunRequest(names=("heavier",)).pending(folder), folder)
    assert first.split()[:7] == ["heavier", "1", "runs", "7.0", "s", "5", "MiB"]
    assert whole.startswith("in all")
    assert [p.name for p in folder.iterdir()] == ["heavier.json"]
