"""The programs of the page "first run", as they stand: they train, agree, resume, and end."""

import os
import re
import runpy
import shutil
import sys
from itertools import islice

import pytest
import torch
import yaml
from torch import nn
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.utils._pytree import keystr, tree_flatten_with_path
from torch.utils.data import DataLoader

from proofbook.runners.system.book import SHARED
from tests.first_run_ranks import run
from tests.processes import ROOT, marked, ran

pytestmark = pytest.mark.ranks
DDP = ROOT / "content/topics/ddp/code/complete_ddp.py"
FSDP = ROOT / "content/topics/sharding/code/complete_fsdp.py"
STEPS = ["--steps", "12", "--log-every", "1", "--save-every", "6", "--checkpoints"]
EXACT = ["--dtype", "fp32", "--dropout", "0"]
VARIABLES = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "OMP_NUM_THREADS": "1"}
FIRST, LAST = "step-00000006", "step-00000012"
STEP = re.compile(r"step (\d+): loss (\S+), norm ([\d.]+)")


def steps(log):
    """The loss and the norm of each step that a log shows, the last time it shows it."""
    found = STEP.findall(log)
    return {int(step): (float(loss), float(norm)) for step, loss, norm in found}


def trained(folder, program, count, *options):
    """Run a program, with `folder` for its checkpoints; its log."""
    log = folder.with_suffix(".log")
    run(program, count, [*STEPS, str(folder), *options], log)
    return log.read_text()


def killed(folder, program, *options, restarts=0):
    """Run a program on two ranks of which one dies as it saves for the second time."""
    words = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    words += ["--max-restarts", str(restarts), ROOT / "tests/first_run_ranks.py", program]
    environment = os.environ | VARIABLES | {"_STARTED_FOR": str(folder)}
    words += [*STEPS, folder, *options]
    return ran([sys.executable, "-m", *words], folder.parent, environment)


def state(folder):
    """All values of the last checkpoint, by path."""
    dcp_to_torch_save(folder / LAST, folder / "whole.pt")
    nested = torch.load(folder / "whole.pt", weights_only=False)
    return {keystr(path): value for path, value in tree_flatten_with_path(nested)[0]}


def assert_same(one, other):
    one, other = state(one), state(other)
    assert one.keys() == other.keys()
    assert len(one) > 100
    for name, value in one.items():
        both = value, other[name]
        assert torch.equal(*both) if isinstance(value, torch.Tensor) else both[0] == both[1], name


def batch(step):
    """All samples of a step of the first epoch, and how many of their tokens are targets."""
    order = torch.randperm(100_000, generator=torch.Generator().manual_seed(0)).tolist()
    samples = runpy.run_path(str(DDP))["Sequences"](32)
    tokens = torch.stack([samples[0, index] for index in order[32 * (step - 1) : 32 * step]])
    return tokens, (tokens[:, 1:] >= 0).sum().item()


@pytest.fixture(scope="module")
def ddp(tmp_path_factory):
    """DDP on two ranks, uninterrupted, in fp32: its checkpoints and its log."""
    folder = tmp_path_factory.mktemp("ddp") / "checkpoints"
    return folder, trained(folder, DDP, 2, *EXACT)


@pytest.fixture(scope="module")
def fsdp(tmp_path_factory):
    """FSDP in the same way, where two checkpoints were never completed."""
    folder = tmp_path_factory.mktemp("fsdp") / "checkpoints"
    for step in (1, 11):
        (folder / f"step-{step:08d}").mkdir(parents=True)
    return folder, trained(folder, FSDP, 2, *EXACT, "--save-every", "4", "--timeout", "3")


def test_the_page_counts_the_parameters_of_each_size():
    page = (ROOT / "content/pages/first-run.md").read_text()
    given = yaml.safe_load((ROOT / "content/references.yml").read_text())["given"]
    lengths = {"tiny": 32, "small": 1024, "large": 1024}
    for program in (DDP, FSDP):
        code = runpy.run_path(str(program))
        for size, (num_blocks, width) in code["SIZES"].items():
            assert re.search(rf"^\| `{size}`.* \| `{num_blocks} × {width}` \|", page, re.MULTILINE)
            with torch.device("meta"):
                model = code["Transformer"](num_blocks, width, lengths[size], 0.0)
            count = sum(one.numel() for one in model.parameters())
            assert count == given[f"{size}-parameters"]["value"], size


def test_a_token_weighs_alike_in_any_microbatch_and_both_programs_start_alike(ddp, fsdp):
    code = runpy.run_path(str(DDP))
    model = code["Transformer"](2, 64, 32, 0.0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(code["initial"](name, parameter.shape, "cpu"))
    tokens, count = batch(1)
    (loss := model(tokens) / count).backward()
    norm = nn.utils.get_total_norm([one.grad for one in model.parameters()])
    for log in (ddp[1], fsdp[1]):
        assert steps(log)[1] == pytest.approx((loss.item(), norm.item()), abs=1e-3)


def test_the_rate_in_the_log_counts_no_save_and_no_first_step(ddp, fsdp):
    targets = [(str(step), str(batch(step)[1])) for step in range(2, 13)]  # by our clock, in 1 s
    for log in (ddp[1], fsdp[1]):
        assert re.findall(r"step (\d+): .* (\d+) tokens/s", log) == targets


def test_old_checkpoints_go_once_newer_ones_are_complete(fsdp):
    found = {one.name: (one / ".metadata").exists() for one in fsdp[0].glob("step-*")}
    assert found == {"step-00000008": True, "step-00000011": False, LAST: True}


def test_a_rank_waits_as_told_builds_shards_sums_into_shards_and_warms_up_within_the_run(fsdp):
    calls = fsdp[0].with_suffix(".calls").read_text()
    assert set(re.findall("init_process_group (.+)", calls)) == {"0:03:00"}
    assert set(re.findall("reset_parameters (.+)", calls)) == {"meta"}
    ranks, updates, microbatches, units = 2, 12, 2, 3
    assert calls.count("reduce_scatter") == ranks * updates * microbatches * units
    assert max(re.findall(r"step (0\.\d+)", calls)) == "0.01"


def test_weight_decay_leaves_out_norms_biases_and_embeddings(fsdp):
    for path, name in (found := state(fsdp[0])).items():
        if "['params']" in path:
            is_matrix = name.endswith("weight") and not re.search("norm|token|position", name)
            assert (found[path.split("['params']")[0] + "['weight_decay']"] > 0) == is_matrix, name


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
        assert numbers == pytest.approx(whole[step], abs=1e-3), step


def test_a_killed_rank_ends_the_job_and_the_same_command_resumes_it(tmp_path):
    whole = trained(tmp_path / "whole", FSDP, 2)
    losses = [loss for loss, _ in steps(whole).values()]
    assert losses[-1] < losses[0] - 0.5
    stopped = tmp_path / "stopped"
    ended = killed(stopped, FSDP)
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
    samples = {(epoch, index): 42 * epoch + index for epoch in (0, 1) for index in range(42)}

    def drawn(rank, step, count):
        sampler = code["ResumableSampler"](range(42), 2, rank, drop_last=True)
        loader = DataLoader(samples, batch_size=2, sampler=sampler)
        found = islice(code["batches"](loader, step, 5, accumulation=2), count)
        return [torch.cat(microbatches).tolist() for microbatches in found]

    ranks = [drawn(rank, 0, 10) for rank in range(2)]
    for epoch in (slice(0, 5), slice(5, 10)):
        assert len({one for rank in ranks for batch in rank[epoch] for one in batch}) == 40
    assert ranks[0][:5] != ranks[0][5:]
    one, other = (code["Sequences"](32) for _ in range(2))
    assert torch.equal(one[1, 3], other[1, 3])  # whatever was drawn before
    assert not torch.equal(one[0, 3], one[1, 3])
    assert drawn(1, 7, 3) == ranks[1][7:]


def changed(folder, *differences):
    """The FSDP program and `resume.py` in a folder, with differences that the page shows."""
    files = {file.name: file.read_text() for file in (FSDP, SHARED / "resume.py")}
    for difference in differences:
        name, _, lines = difference.partition("\n")
        for part in lines.strip("\n").split("\n\n"):
            kinds = [(line[:1] or " ", line[2:]) for line in part.split("\n")]
            old, new = (
                "\n".join(line for kind, line in kinds if kind in (" ", sign)) for sign in "-+"
            )
            old_text, new_text = (f"{text}\n" if text else "" for text in (old, new))
            files[name] = inserted(files[name], old_text, new_text)
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder / FSDP.name


def inserted(text, old, new):
    assert text.count(old) == 1, old
    return text.replace(old, new)


def test_the_differences_of_the_page_apply_and_train_as_the_program_does(ddp, tmp_path):
    page = (ROOT / "content/pages/first-run.md").read_text().partition("## Choices beyond")[2]
    replicas, saves, waits, _ = re.findall(r"```diff\n--- (.*?)```", page, re.DOTALL)
    program = changed(tmp_path, replicas, saves, waits)
    log = trained(tmp_path / "checkpoints", program, 4, *EXACT)
    for step, numbers in steps(log).items():
        assert numbers == pytest.approx(steps(ddp[1])[step], abs=1e-3), step
    assert (tmp_path / "checkpoints" / LAST / ".metadata").exists()
    assert "\nsave" not in (tmp_path / "checkpoints.calls").read_text()
