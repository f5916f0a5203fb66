"""A model that no experiment has, planned by the command, then trained on real ranks over gloo.

Tensor bytes are compared, since a device's allocator rounds them up and a CPU's does not report
them. Ranks train by loops that share no code with the plan (`vision_transformer.py`), under the
memory meter.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from runners.__main__ import main
from runners.simulate import processes
from tests.runners.vision_transformer import DEPTH, MICROBATCH, NUM_MICROBATCHES

ROOT = Path(__file__).resolve().parents[2]
OWN = "tests.runners.vision_transformer"
STRATEGIES = ["ddp", "zero1", "fsdp", "tp", "gpipe"]
RANKS = 4
MODEL = ["--model", f"{OWN}:VisionTransformer", "--batch", f"{OWN}:batch", "--sequence", "1"]
PARTS = ["--stages", f"{OWN}:stages", "--tensor-plan", f"{OWN}:tensor_plan"]


def planned(capsys, words):
    """The command's answers by strategy."""
    assert main(["plan", *words, "--json"]) == 0
    return {one["question"]["strategy"]["name"]: one for one in json.loads(capsys.readouterr().out)}


@pytest.fixture(scope="module")
def real_peaks(tmp_path_factory):
    """Peaks of real ranks; for each rank by strategy."""
    folder = tmp_path_factory.mktemp("ranks")
    subprocess.run(
        [sys.executable, "-m", OWN, str(folder), str(RANKS)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
    )
    written = [folder / f"rank{rank}.json" for rank in range(RANKS)]
    return [json.loads(one.read_text(encoding="utf-8")) for one in written]


@pytest.mark.ranks
def test_real_ranks_peak_where_the_plan_says(real_peaks, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "CACHE", tmp_path)
    words = ["--devices", str(RANKS), "--precision", "fp32", "--backend", "gloo"]
    words += ["--microbatch", str(MICROBATCH)]
    words += ["--global-batch", str(MICROBATCH * NUM_MICROBATCHES * RANKS)]
    answers = planned(capsys, [*MODEL, *PARTS, *words, "--strategies", ",".join(STRATEGIES)])
    assert {one["reason"] for one in answers.values()} == {None}
    peaks = {
        (name, one["rank"]): one["peak_bytes"]
        for name, answer in answers.items()
        for one in answer["ranks"]
    }
    assert peaks == {
        (name, rank): pytest.approx(real_peaks[rank][name], rel=0.02) for name, rank in peaks
    }


@pytest.mark.builds
def test_without_a_tensor_plan_or_stages_the_row_says_which(capsys):
    words = [*MODEL, "--devices", "2", "--microbatch", "2", "--precision", "fp32"]
    rows = planned(capsys, words)
    for strategy, said in (("tp", "--tensor-plan"), ("gpipe", "--stages"), ("1f1b", "--stages")):
        assert said in rows[strategy]["reason"]
    assert rows["ddp"]["reason"] is None


def test_what_a_function_of_the_model_raises_is_one_line(capsys):
    words = [*MODEL, *PARTS, "--devices", str(2 * DEPTH), "--strategies", "gpipe"]
    assert main(["plan", *words]) == 2
    *_, said = capsys.readouterr().err.splitlines()  # below how many are simulated
    assert f"{2 * DEPTH} stages do not divide {DEPTH} blocks" in said
