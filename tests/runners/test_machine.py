"""A machine keeps its folder, and `python -m runners machine` measures and reports it."""

import json
import shlex
import subprocess
import sys
import zipfile
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest

from proofbook.runners.__main__ import main
from proofbook.runners.commands import machine as command
from proofbook.runners.commands.run import RunRequest
from proofbook.runners.core.declared.experiment import find, names
from proofbook.runners.core.measuring import measure
from proofbook.runners.core.measuring.launch import Launcher
from proofbook.runners.core.measuring.measure import alone
from proofbook.runners.core.system import accelerator
from proofbook.runners.core.trace import machine
from proofbook.runners.core.trace.records import Accelerator
from proofbook.runners.system.book import ROOT
from proofbook.runners.system.errors import FixableError
from proofbook.runners.system.stopping import Stopped
from proofbook.runners.traces.files import write

GIBIBYTE = 1 << 30
CARD = "NVIDIA H100 PCIe"
DESK = {"cpu_name": "Desk 9000", "num_cores": 8, "accelerators": []}


class Desk:
    """A machine on which each fact is what a test says it is."""

    def __init__(self, patch, folder):
        self._patch = patch
        self.traces = folder / "traces"
        patch.setattr(machine, "LOCAL_ID", folder / ".machine.json")
        patch.setattr(machine, "TRACES", self.traces)
        self.has(**DESK)

    def has(self, **facts):
        for name, fact in facts.items():
            self._patch.setattr(machine, name, lambda fact=fact: fact)

    def measures(self):
        """The name of the folder that it measures into."""
        machine.keep_id()
        write(self.traces / machine.describe().name / "machine.json", machine.describe())
        return machine.describe().name


@pytest.fixture
def desk(monkeypatch, tmp_path):
    return Desk(monkeypatch, tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"cpu_name": "Desk 9001"},
        {"num_cores": 3},
        {"accelerators": [Accelerator(name=CARD, memory_bytes=80 * GIBIBYTE)] * 2},
    ],
)
def test_a_changed_machine_has_another_folder_and_comes_back_to_its_first(desk, change):
    first = desk.measures()
    desk.has(**change)
    second = desk.measures()
    assert second.rsplit("-", 1)[1] != first.rsplit("-", 1)[1]
    assert second.startswith("2x-h100-pcie-") is ("accelerators" in change)
    desk.has(**DESK)
    assert desk.measures() == first
    desk.has(**change)
    assert desk.measures() == second


def test_ids_that_cannot_be_read_are_an_error_and_are_not_replaced(desk):
    machine.LOCAL_ID.write_text("{torn")
    for ask in (machine.describe, machine.keep_id):
        with pytest.raises(FixableError, match="delete it to measure into new folders"):
            ask()
    machine.LOCAL_ID.write_text("[]")
    with pytest.raises(FixableError, match="does not map machines to ids"):
        machine.describe()
    assert machine.LOCAL_ID.read_text() == "[]"


def test_where_traces_are_kept_elsewhere_the_reference_is_that_of_the_code(desk):
    assert machine.folder_of(None).parent == ROOT / "content" / "traces"
    with alone():  # the first to measure makes the place
        assert machine.TRACES.is_dir()
    own = desk.traces / "reference-desk"
    own.mkdir()
    assert machine.folder_of(None) == own


@pytest.fixture
def with_devices(monkeypatch):
    """A launcher of a machine with so many accelerators, of which nothing is asked."""
    with ExitStack() as stack:

        def launcher(count):
            monkeypatch.setattr(accelerator, "num_devices", lambda: count)
            return stack.enter_context(Launcher("cuda"))

        yield launcher


# --- what is measured, and in which order


@pytest.mark.parametrize(
    ("count", "order"),
    [
        # Over NCCL with sizes of its own and without, on one accelerator, on the CPU.
        (8, ["sharding", "ddp", "checkpointing", "recomputation", "hangs"]),
        (1, ["checkpointing", "sharding", "recomputation", "ddp", "hangs"]),  # none over NCCL
    ],
)
def test_what_several_accelerators_tell_comes_first_then_what_one_tells(
    count, order, with_devices, tmp_path
):
    waiting = RunRequest(tuple(sorted(order))).pending(tmp_path)
    ordered = command.in_order(waiting, with_devices(count), tmp_path)
    assert [runs.experiment.name for runs in ordered] == order


@pytest.mark.parametrize(
    ("experiments", "begun"),  # each with the seconds that it was expected to take, and took
    [
        ([(30, 30), (40, 40), (20, 20)], [(30, 30), (20, 20)]),
        ([(10, 30), (11, 11), (9, 9)], [(10, 30), (9, 9)]),  # it is expected to go on so
        ([(10, 1), (59, 59), (60, 60)], [(10, 1), (59, 59)]),
    ],
)
def test_an_experiment_that_should_end_too_late_does_not_begin_and_a_shorter_one_does(
    experiments, begun, monkeypatch
):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(command, "time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(command, "in_order", lambda waiting, *_: waiting)
    monkeypatch.setattr(command, "expected_seconds", lambda runs, _: runs[0])
    found = []
    for one in command.in_time(60)(experiments, None):
        found.append(one)
        clock.now += one[1]
    assert found == begun


def test_what_is_left_out_stays_pending_and_is_named(folder, capsys):
    assert main(["machine", "heavier", "--minutes", "0.0001"]) == 0
    assert capsys.readouterr().out == f"nothing is measured in {measure.folder()}\n"
    assert [runs.reason for runs in RunRequest(("heavier",)).pending(folder)] == ["missing"]


# --- what it reports


@pytest.fixture
def reported(folder, capsys):
    """Run the command, and return its exit code and the lines that it prints."""

    def called(*words):
        code = main(["machine", *words])
        return code, capsys.readouterr().out.splitlines()

    return called


def test_it_reports_what_ran_what_surprised_what_is_left_and_how_to_send_the_folder(
    reported, tmp_path
):
    code, lines = reported("heavier", "odd")
    here = measure.folder()
    assert code == 1  # a surprise
    assert lines[0].startswith(f"{here.name}: {machine.cpu_name()}, cores: {machine.num_cores()}, ")
    assert lines[1:3] == ["measured: 2 experiments, runs on:", "  cpu (3)"]
    surprised = [line for line in lines if line.startswith("  odd.")]
    assert len(surprised) == 2
    after = lines.index("left to the same command:")
    left = {*lines[after + 1].strip().split(", ")}
    assert {"full", "ddp"} <= left  # `heaviest` and `labs` are heavy as a whole
    assert left.isdisjoint({"heavier", "odd", "heaviest", "listings"})
    full = lines.index("left to `python -m runners run --full`:") + 1
    assert lines[full].startswith("  1 runs of these, heaviest, ")
    assert f"  git add --force {here}/*.json" in lines

    _, *arguments = shlex.split(lines[-1])
    subprocess.run([sys.executable, *arguments], cwd=tmp_path, check=True)
    inside = zipfile.ZipFile(tmp_path / f"{here.name}.zip").namelist()
    assert {f"{here.name}/{name}.json" for name in ("machine", "heavier", "odd")} <= {*inside}


def test_ctrl_c_keeps_and_reports_what_was_measured(reported, monkeypatch):
    measured = command.run

    def stopped(request, in_turn):
        measured(request, in_turn)
        raise Stopped(2)

    monkeypatch.setattr(command, "run", stopped)
    code, lines = reported("heavier")
    assert code == 130
    assert "measured: 1 experiments, runs on:" in lines
    monkeypatch.setattr(command, "run", None)
    assert reported("--minutes", "0") == (0, lines)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("no /home/alice/data", "/home/alice"),
        ("/home/aliceandbob", "not named"),
        ("box7: lost", "box7"),
        ("xbox7", "not named"),
    ],
)
def test_it_says_where_a_trace_names_the_owner_or_the_host(text, named, tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "home", lambda: Path("/home/alice"))
    monkeypatch.setattr(command.platform, "node", lambda: "box7")
    (tmp_path / "one.json").write_text(json.dumps({"message": text}))
    (line,) = (line for line in command._to_send(tmp_path) if line.startswith("Your home folder"))
    assert line.endswith(f": {named}.")


# --- what runs on GPUs, as the guide says


def _rows(with_devices):
    """The rows of the guide's table: experiments of which some runs take a GPU."""
    counts = {name: Counter() for name in names()}
    for count in 1, 8:
        launcher = with_devices(count)
        for name, of in counts.items():
            experiment = find(name)
            on_gpu = {run: one for run, one in experiment.runs.items() if not one.only_on_cpu}
            own = on_gpu.keys() if "*" in experiment.on_cuda else experiment.on_cuda.keys()
            of |= {"own": len(own)}
            of |= {"timed": sum("timed" in on_gpu[run].passes for run in on_gpu.keys() - own)}
            for one in on_gpu.values():
                place = launcher.place_of(one)
                how = place.backend if one.world_size > 1 else "alone"
                of[count, "skipped" if measure.cannot_run(one, place) else how] += 1
    shown = (1, "alone"), (1, "gloo"), (1, "skipped"), (8, "nccl"), "own", "timed"
    for name, of in counts.items():
        if any(of.values()):
            yield f"| `{name}` | {' | '.join(str(of[what] or '') for what in shown)} |"


def test_the_guide_says_what_runs_on_one_gpu_and_on_eight(root, with_devices, monkeypatch):
    monkeypatch.setattr(accelerator, "kind", lambda: "cuda")
    guide = (root / "runners" / "experiments" / "README.md").read_text(encoding="utf-8")
    table = [line for line in guide.splitlines() if line[:3] == "| `"]
    assert table == [*_rows(with_devices)]
