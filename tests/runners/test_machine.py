"""A machine keeps its folder whatever changes around it; other cores make another."""

import os
import sys
from pathlib import Path

import pytest

from proofbook.runners.core.measuring.measure import alone
from proofbook.runners.core.trace import machine
from proofbook.runners.core.trace.records import Accelerator
from proofbook.runners.system.book import ROOT
from proofbook.runners.system.errors import FixableError
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
        """Change what the machine tells of itself."""
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


def test_circumstances_are_those_of_this_process(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    found = machine.circumstances()
    assert found.python == ".".join(map(str, sys.version_info[:3]))
    assert found.visible_devices == ""
    if hasattr(os, "sched_getaffinity"):
        listed = Path("/proc/self/status").read_text().partition("Cpus_allowed_list:\t")[2]
        assert found.affinity == listed.splitlines()[0]


def test_where_traces_are_kept_elsewhere_the_reference_is_that_of_the_code(desk):
    assert machine.folder_of(None).parent == ROOT / "content" / "traces"
    own = desk.traces / "reference-desk"
    own.mkdir(parents=True)
    assert machine.folder_of(None) == own


def test_in_an_empty_folder_the_first_to_measure_makes_the_place_of_its_traces(desk, monkeypatch):
    monkeypatch.setattr(machine, "TRACES", desk.traces / "content" / "traces")
    with alone():
        assert machine.TRACES.is_dir()
