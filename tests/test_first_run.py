"""The programs of the page "first run", as they stand: they train, agree, resume, and end."""

import os
import re
import runpy
import shutil
import sys
from itertools import islice

import pytest
import torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.utils.data import DataLoader

from tests.first_run_ranks import run
from tests.processes import ROOT, marked, ran

pytestmark = pytest.mark.ranks
DDP = ROOT / "content/topics/ddp/code/complete_ddp.py"
FSDP = ROOT / "content/topics/sharding/code/complete_fsdp.py"
STEPS = ["--steps", "12", "--log-every", "1", "--save-every", "6", "--checkpoints"]
EXACT = ["--dtype", "fp32", "--dropout", "0"]
VARIABLES = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "OMP_NUM_THREADS": "1"}
FIRST, LAST = "step-00000006", "step-00000012"
STEP = re.compile(r"step (\d+): loss (\S+), norm (\S+)")


def steps(log):
    """The loss and the norm of each step that a log shows, the last time it shows it."""
    found = STEP.findall(log)
    return {int(step): (float(loss), float(norm)) for step, loss, norm in found}


def trained(folder, program, count, *options):
    """Run a program, with `folder` for its checkpoints; its log."""
    log = folder.with_suffix(".log")
    run(program, count, [*STEPS, str(folder), *options], log)
    return log.read_text()


def torchrun(folder, program, *options, restarts):
    """Run a program on two ranks of which one dies as it saves for the second time."""
    ranks = ["--standalone", "--nproc-per-node", "2", "--max-restarts", str(restarts)]
    dying = [str(ROOT / "tests/first_run_ranks.py"), str(program)]
    words = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        *ranks,
        *dying,
        *STEPS,
        folder,
        *options,
    ]
    return ran(words, folder.parent, os.environ | VARIABLES | {"PROOFBOOK_TEST": str(folder)})


def state(folder):
    """All values of the last checkpoint, by name."""
    dcp_to_torch_save(folder / LAST, folder / "whole.pt")
    values = {}

    def flatten(name, value):
        if isinstance(value, dict):
            for key, inner in value.items():
                flatten(f"{name}.{key}", inner)
        else:
            values[name] = value

    flatten("", torch.load(folder / "whole.pt", weights_only=False))
    return values


def assert_same(one, other):
    one, other = state(one), state(other)
    assert one.keys() == other.keys()
    assert len(one) > 100
    for name, value in one.items():
        both = value, other[name]
        assert torch.equal(*both) if isinstance(value, torch.Tensor) else both[0] == both[1], name


@pytest.fixture(scope="module")
def ddp(tmp_path_factory):
    """DDP on two ranks, uninterrupted, in fp32: its checkpoints and its log."""
    folder = tmp_path_factory.mktemp("ddp") / "checkpoints"
    return folder, trained(folder, DDP, 2, *EXACT)


@pytest.mark.parametrize(("program", "count"), [(DDP, 1), (FSDP, 2)])
def test_ranks_and_techniques_go_on_alike_from_one_checkpoint(ddp, tmp_path, program, count):
    folder, log = ddp
    shutil.copytree(folder / FIRST, tmp_path / "checkpoints" / FIRST)
    resumed = trained(tmp_path / "checkpoints", program, count, *EXACT)
    assert resumed.startswith("resumed after step 6\n")
    whole, rest = steps(log), steps(resumed)
    assert list(whole) == list(range(1, 13))
    assert list(rest) == list(range(7, 13))
    for step, numbers in rest.items():
        assert numbers == pytest.approx(whole[step], abs=2e-4), step


def test_a_killed_rank_ends_the_job_and_the_same_command_resumes_it(tmp_path):
    whole = trained(tmp_path / "whole", FSDP, 2)
    losses = [loss for loss, _ in steps(whole).values()]
    assert losses[-1] < losses[0] - 0.5
    stopped = tmp_path / "stopped"
    ended = torchrun(stopped, FSDP, restarts=0)
    assert ended.returncode == 1
    assert "Signal 9 (SIGKILL)" in ended.stderr
    assert marked(stopped) == set()
    assert not (stopped / LAST / ".metadata").exists()
    (stopped / LAST).mkdir(exist_ok=True)
    (stopped / LAST / "__0_0.distcp").write_bytes(b"a part that was never completed")
    resumed = trained(stopped, FSDP, 2)
    assert resumed.startswith("resumed after step 6\n")
    assert steps(ended.stdout) | steps(resumed) == steps(whole)
    assert_same(tmp_path / "whole", stopped)


@pytest.mark.parametrize("program", [DDP, FSDP])
def test_the_data_of_an_epoch_come_once_and_go_on_from_any_step(program):
    code = runpy.run_path(str(program))
    samples = list(range(42))

    def drawn(rank, step, count):
        sampler = code["ResumableSampler"](samples, 2, rank, drop_last=True)
        loader = DataLoader(samples, batch_size=2, sampler=sampler)
        found = islice(code["batches"](loader, step, 5, accumulation=2), count)
        return [torch.cat(microbatches).tolist() for microbatches in found]

    ranks = [drawn(rank, 0, 10) for rank in range(2)]
    for epoch in (slice(0, 5), slice(5, 10)):
        assert len({one for rank in ranks for batch in rank[epoch] for one in batch}) == 40
    assert ranks[0][:5] != ranks[0][5:]
    assert drawn(1, 7, 3) == ranks[1][7:]
