"""A machine keeps its folder whatever changes around it; a part of it has a folder of its own."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from runners.system.errors import FixableError
from runners.traces import machine
from runners.traces.files import machine_folders, read_machine, write
from runners.traces.identity import Identity, id_among
from runners.traces.machine_records import Accelerator

GIBIBYTE = 1 << 30
MEBIBYTE = 1 << 20
CARD = "NVIDIA H100 PCIe"
DESK = {
    "cpu_name": "Desk 9000", "memory_bytes": 64 * GIBIBYTE, "num_installed_cores": 8,
    "num_cores": 8, "installed_accelerators": [], "accelerators": [],
}  # fmt: skip


class Desk:
    """A machine on which each fact is what a test says it is."""

    def __init__(self, patch: pytest.MonkeyPatch, folder: Path) -> None:
        self._patch = patch
        self.traces = folder / "traces"
        patch.setattr(machine, "LOCAL_ID", folder / ".machine.json")
        patch.setattr(machine, "TRACES", self.traces)
        self.has(**DESK)

    def has(self, **facts: object) -> None:
        """Change what the machine tells of itself."""
        for name, fact in facts.items():
            self._patch.setattr(machine, name, lambda fact=fact: fact)
        forget()

    @property
    def ids(self) -> dict[str, str]:
        return json.loads(machine.LOCAL_ID.read_text())

    def measures(self) -> str:
        """The name of the folder that it measures into."""
        machine.keep_id()
        write(self.traces / machine.describe().name / "machine.json", machine.describe())
        return machine.describe().name


def forget() -> None:
    """Let the next question be answered anew, as in another process."""
    for known in (machine.describe, machine.identity, machine.circumstances):
        known.cache_clear()


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Desk]:
    yield Desk(monkeypatch, tmp_path)
    monkeypatch.undo()
    forget()


def test_a_kernel_that_keeps_a_little_more_memory_for_itself_makes_no_other_machine():
    sizes = [64 * GIBIBYTE + step * 100 * MEBIBYTE for step in range(40)]  # 6 % in all
    for size in sizes:
        kept = {Identity("Desk 9000", size, 8, ()).fingerprints()[0]: "abc123"}
        for change in (-200, -5, 5, 200):
            later = Identity("Desk 9000", size + change * MEBIBYTE, 8, ())
            assert id_among(kept, later) == "abc123", (size, change)
        assert id_among(kept, Identity("Desk 9000", size + 4 * GIBIBYTE, 8, ())) is None


@pytest.mark.parametrize(
    "change",
    [
        {"cpu_name": "Desk 9001"},
        {"memory_bytes": 68 * GIBIBYTE},
        {"num_installed_cores": 16, "num_cores": 16},
        {"installed_accelerators": [CARD]},
    ],
)
def test_a_changed_machine_has_another_folder_and_comes_back_to_its_first(desk, change):
    first = desk.measures()
    desk.has(**change)
    second = desk.measures()
    assert second.split("/")[0].rsplit("-", 1)[1] != first.rsplit("-", 1)[1]
    desk.has(**DESK)
    assert desk.measures() == first
    desk.has(**change)
    assert desk.measures() == second


def test_fewer_cores_than_are_installed_measure_into_a_folder_below(desk):
    whole = desk.measures()
    desk.has(num_cores=3)
    assert desk.measures() == f"{whole}/3-of-8-cores"
    with pytest.raises(FixableError, match="only 3 of 8 cores"):
        machine.describe(as_reference=True)
    found = read_machine(desk.traces / whole / "3-of-8-cores")
    assert (found.num_cores, found.num_installed_cores) == (3, 8)
    assert machine_folders(desk.traces) == [whole, f"{whole}/3-of-8-cores"]


def test_devices_that_torch_may_not_use_make_a_part_too(desk):
    card = Accelerator(name=CARD, memory_bytes=80 * GIBIBYTE)
    desk.has(installed_accelerators=[CARD, CARD], accelerators=[card, card])
    whole = desk.measures()
    assert whole.startswith("2x-h100-pcie-")
    desk.has(accelerators=[card])
    assert desk.measures() == f"{whole}/1-of-2-devices"
    desk.has(accelerators=[], num_cores=4)
    assert desk.measures() == f"{whole}/4-of-8-cores-and-0-of-2-devices"


def test_ids_that_cannot_be_read_are_an_error_and_are_not_replaced(desk):
    machine.LOCAL_ID.write_text("{torn")
    for ask in (machine.describe, machine.keep_id):
        with pytest.raises(FixableError, match="delete it to measure into new folders"):
            ask()
    machine.LOCAL_ID.write_text("[]")
    with pytest.raises(FixableError, match="does not map fingerprints to ids"):
        machine.describe()
    assert machine.LOCAL_ID.read_text() == "[]"


def test_circumstances_are_those_of_this_process(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    forget()
    found = machine.circumstances()
    forget()
    assert found.python == ".".join(map(str, sys.version_info[:3]))
    assert found.visible_devices == ""
    if hasattr(os, "sched_getaffinity"):
        listed = Path("/proc/self/status").read_text().partition("Cpus_allowed_list:\t")[2]
        assert found.affinity == listed.splitlines()[0]
