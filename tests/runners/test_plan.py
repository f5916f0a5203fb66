"""`python -m runners plan`: simulated strategies against closed forms and against real tensors."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
import yaml

from proofbook.runners.__main__ import main
from proofbook.runners.planner import command
from proofbook.runners.planner.answers.answer import PlanAnswer
from proofbook.runners.planner.answers.law_of_time import Cluster
from proofbook.runners.planner.answers.question import TrainingSettings
from proofbook.runners.planner.simulated import cache
from proofbook.runners.planner.simulated.cache import answers
from proofbook.runners.planner.simulated.updates import RankOptimizer
from proofbook.runners.system.book import ROOT
from tests.conftest import wait_until
from tests.processes import marked
from tests.runners.questions import GPT, LLAMA, asked, by_forms, changed, simulated

DEEP = changed(LLAMA, num_layers=4)
GPT_TIED = changed(GPT, num_layers=4, has_tied_embeddings=True)


def payload(plan, operation, axis):
    return sum(c.bytes for c in plan.calls if (c.operation, c.axis) == (operation, axis))


ONE = {"precision": "fp32", "global_batch": 4}


def test_ranks_that_share_a_parameter_unevenly_exchange_equal_padded_parts(monkeypatch):
    given = []
    for name in ("reduce_scatter_single", "all_gather_single"):

        def collective(output, source, group, name=name):
            given.append((name, output.numel(), source.numel()))

        monkeypatch.setattr(dist, name, collective)
    seven = torch.nn.Parameter(torch.ones(7))
    seven.grad = torch.ones(7)
    last_of_three = SimpleNamespace(size=lambda: 3, rank=lambda: 2)
    RankOptimizer(
        [seven], TrainingSettings(sequence=1, precision="fp32"), {seven: last_of_three}
    ).step()
    assert given == [("reduce_scatter_single", 3, 9), ("all_gather_single", 9, 3)]


NUM, DEPTH = LLAMA.num_parameters, LLAMA.num_layers
LAST = LLAMA.embedding_parameters + LLAMA.norm_parameters
KEYS = 2 * 32 * 2 * LLAMA.head_size  # and values, of two heads of a layer


@pytest.mark.parametrize(
    ("strategy", "how", "axis", "sent"),
    [
        # Freed after the backward pass of each of two microbatches.
        ("fsdp-keep", {"precision": "fp32"}, "data",
         {"reduce_scatter": 8 * NUM, "all_gather": 8 * NUM}),
        # Gradients that are summed up in fp32 are sent in fp32.
        ("zero1", {"has_wide_gradients": True}, "data",
         {"reduce_scatter": 4 * NUM, "all_gather": 2 * NUM}),
        # The ends are units, of which the last stays gathered for backward.
        ("fsdp", {"ends_are_units": True, "last_unit_stays": False}, "data",
         {"all_gather": 2 * 2 * (2 * (NUM - LAST) + LAST)}),
        # Torch's ring attention: keys in bf16, twice; their gradients are fp32 whatever keys are.
        ("cp", {"global_batch": 1, "shape": changed(LLAMA, num_kv_heads=2)}, "context",
         {"all_gather": DEPTH * 2 * KEYS * 2, "all_to_all": DEPTH * KEYS * 4}),
    ],
)  # fmt: skip
def test_ranks_of_an_axis_send_what_its_closed_form_says(strategy, how, axis, sent):
    plan = simulated(strategy, **{"precision": "bf16-mixed", **how})
    assert {operation: payload(plan, operation, axis) for operation in sent} == sent


def test_attention_to_earlier_tokens_is_half_of_the_square():
    """Closed form: of scores and of what they weigh, forward once and backward 2.5 times."""
    single, whole = (
        simulated("single", **ONE, has_fused_attention=is_fused) for is_fused in (True, False)
    )
    square = 4 * 2 * LLAMA.num_layers * 2 * 32 * 32 * LLAMA.hidden_size
    assert single.flops - 3.5 * square / 2 == whole.flops - 3 * square


def test_axes_divide_the_work_and_repeat_none_of_it():
    whole = simulated("single", **ONE, has_fused_attention=True).flops
    for strategy in ("ddp", "tp", "fsdp.2+tp-sp.2", "cp.2+tp-sp.2"):
        assert simulated(strategy, **ONE).flops == whole / 4
    first, last = (simulated("1f1b", 2, rank=rank, **ONE).flops for rank in (0, 1))
    assert whole / 4 < first < whole / 2 < last  # the last stage has the logits


def test_only_the_ends_of_a_pipeline_sum_the_gradient_of_a_tied_embedding():
    first, inner, last = (
        simulated("1f1b", shape=GPT_TIED, rank=rank, precision="fp32") for rank in (0, 1, 3)
    )
    for rank in (first, last):
        [summed] = [call for call in rank.calls if call.operation == "all_reduce"]
        assert (summed.axis, summed.num_ranks) == ("embedding", 2)
        assert summed.bytes == 4 * GPT.vocabulary * GPT.hidden_size
    assert not payload(inner, "all_reduce", "embedding")


def test_the_bound_of_equal_stages_is_the_time_of_their_schedule():
    """Stages of one layer, of which each needs `work` for a step: the published bubble."""
    num, microbatches, work = 4, 8, 1e12
    question = asked("1f1b", shape=DEEP, global_batch=microbatches)
    rank = simulated("ddp", **ONE).model_copy(update={"flops": int(work), "calls": []})
    answer = PlanAnswer(question=question, ranks=[rank] * 3, seconds=0.0)
    rate = 2e12
    expected = (microbatches + num - 1) / microbatches * work / rate
    cluster = Cluster(1, 4, rate, within=1e9, between=1e9)
    assert answer.bounds(cluster).at_least == pytest.approx(expected)


GPT2 = ["for", "gpt2-124m"]
ON_FOUR = [*GPT2, "--devices", "4", "--strategies"]
OWN = "tests.runners.planned_ranks"
VISION = ["for", f"{OWN}:Residuals", "--batch", f"{OWN}:batch", "--devices", "2"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([*ON_FOUR, "quick"], "no strategy 'quick'"),
        ([*ON_FOUR, "ddp+fsdp"], "two strategies for the data axis"),
        ([*ON_FOUR, "ddp+tp"], "only one axis"),
        ([*ON_FOUR, "fsdp.3"], "do not make 4"),
        ([*ON_FOUR, "fsdp.y"], "sizes are numbers, as in fsdp.16"),
        ([*ON_FOUR, "hsdp.4"], "hsdp.2.8"),
        ([*ON_FOUR, "fsdp.4.3"], "do not divide 4 ranks"),
        ([*ON_FOUR, "tp.2.2"], "sizes are numbers"),
        ([*ON_FOUR, "fsdp+ep"], "ep.8"),
        (["gpt2-124m"], "invalid choice: 'gpt2-124m' (choose from"),
        (["for", "gpt3"], "no preset 'gpt3'"),
        ([*GPT2, "--devices", "5", "--strategies", "tp"], "do not divide 12 heads"),
        ([*ON_FOUR, "ddp", "--global-batch", "6"], "do not divide a"),
        (["for", "os:getcwd"], "os:getcwd needs --batch"),
        (["for", "os:getcwd", "--loss-chunks", "2"], "--loss-chunks has no effect with os:getcwd"),
        ([*VISION, "--strategies", "tp"], "--tensor-plan"),
        ([*VISION, "--strategies", "gpipe"], "presets alone"),
        ([*GPT2, "--batch", "m:f"], "--batch has no effect with gpt2-124m"),
        (["check", "gpt3"], "no plan 'gpt3'"),
    ],
)
def test_what_cannot_be_planned_is_one_line(words, why, capsys):
    if words[0] == "gpt2-124m":
        with pytest.raises(SystemExit, match="2"):
            main(["plan", *words])
    else:
        assert main(["plan", *words]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert why in said.err.splitlines()[-1]


FEW_LAYERS = {
    "model_type": "llama", "num_hidden_layers": 1, "hidden_size": 4096, "num_attention_heads": 32,
    "intermediate_size": 8192, "vocab_size": 4096, "max_position_embeddings": 64,
}  # fmt: skip


@pytest.mark.builds
def test_the_command_prints_a_table_and_json(capsys, monkeypatch, tmp_path):
    simulated = []

    def once(questions, num_workers):
        """The table and the JSON ask the same."""
        simulated.extend([] if simulated else answers(questions, num_workers))
        return simulated

    monkeypatch.setattr(command, "answers", once)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(FEW_LAYERS))
    words = ["plan", "for", str(path), "--devices", "2", "--sequence", "64"]
    words += ["--strategies", "ddp,fsdp"]
    assert main([*words, "--memory", "5.2", "--flops", "1e14", "--links", "1"]) == 0
    table = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in table[3:]] == [["fits", "fsdp,"], ["marginal", "ddp,"]]
    assert main([*words, "--json", "--memory", "5.2"]) == 0
    first, second = json.loads(capsys.readouterr().out)
    assert [first["verdict"], second["verdict"]] == ["fits", "marginal"]
    assert first["ranks"][0]["at_peak"]["parameters_bytes"] > 0


@pytest.mark.builds
@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_ctrl_c_ends_the_command_in_one_line_and_leaves_no_process(tmp_path):
    words = [sys.executable, "-m", "runners", "plan", "for", "llama-70b", "--devices", "64"]
    own = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(words, cwd=ROOT, env=own, stderr=subprocess.PIPE, text=True) as command:
        wait_until(lambda: len(marked(tmp_path)) > 1, lambda: command.poll() is None)
        command.send_signal(signal.SIGINT)
        _, said = command.communicate()
    assert command.returncode == 130
    assert sum("strategies simulated" not in one for one in said.splitlines()) == 1
    wait_until(lambda: not marked(tmp_path))


def test_what_was_answered_once_is_read(monkeypatch, tmp_path):
    asked_of = []

    def simulate(questions, num_workers):
        asked_of.extend(questions)
        return [PlanAnswer(question=one, reason="not today", seconds=0) for one in questions]

    monkeypatch.setattr(cache, "answers", simulate)
    monkeypatch.setattr(cache, "CACHE", tmp_path / "plans")
    first, second = asked("fsdp"), asked("ddp")
    found = cache.cached([first])
    assert cache.cached([second, first])[1] == found[0]
    assert asked_of == [first, second]
    monkeypatch.setattr(cache, "engine_digest", lambda: "other code")
    cache.cached([first])
    assert asked_of == [first, second, first]


@pytest.fixture
def _by_forms(monkeypatch, tmp_path):
    """Closed forms take the place of simulations, and the command keeps its answers elsewhere."""
    for module in (cache, command):
        monkeypatch.setattr(module, "answers", by_forms)
    monkeypatch.setattr(cache, "CACHE", tmp_path / "plans")


@pytest.mark.usefixtures("_by_forms")
def test_the_same_question_has_the_same_answer(capsys):
    words = ["plan", "for", "gpt2-124m", "--devices", "2", "--sequence", "1024"]
    assert main(words) == 0
    usual = capsys.readouterr().out
    assert main(words) == 0
    assert capsys.readouterr().out == usual
    title, form, *_ = usual.splitlines()
    assert title.startswith("gpt2-124m, 124.4 M parameters, on 2 devices")
    assert form.startswith("by closed forms:   ddp-view, microbatch 1")


@pytest.mark.usefixtures("_by_forms")
def test_without_devices_the_command_says_how_many(capsys):
    assert main(["plan", "for", "gpt2-124m", "--memory", "80", "--sequence", "64"]) == 0
    title, first, *_ = capsys.readouterr().out.splitlines()
    assert "on how many devices of 80 GiB" in title
    assert first.split()[:4] == ["1", "device", "single,", "microbatch"]


@pytest.mark.usefixtures("_by_forms")
def test_a_no_names_what_would_turn_it(capsys):
    words = ["plan", "for", "gpt2-124m", "--devices", "1", "--memory", "3.2", "--sequence", "1024"]
    assert main(words) == 2
    said = capsys.readouterr().err
    assert "no layout fits 3.2 GiB" in said
    assert "it fits with --" in said


def _commands():
    """What follows `plan` in each command of the page; and the program that it shows."""
    page = yaml.safe_load((ROOT / "content" / "planner" / "plan.yml").read_text(encoding="utf-8"))
    blocks = re.findall(r"```sh\n(.*?)```", page["own"], re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").strip().splitlines()
    commands = [shlex.split(line) for line in lines]
    assert all(one[:4] == [".venv/bin/python", "-m", "runners", "plan"] for one in commands)
    return [one[4:] for one in commands], page["program"]["path"]


@pytest.mark.builds
def test_the_example_of_the_page_plans_a_model_of_your_own(capsys, monkeypatch):
    commands, path = _commands()
    program = path.removesuffix(".py").replace("/", ".")
    words = commands[-1]
    assert [f"{program}:model", f"{program}:batch"] == [words[1], words[3]]
    monkeypatch.chdir(ROOT)
    assert main(["plan", *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = {line.split()[1]: line.split()[0] for line in lines[3:] if line.strip()}
    assert rows == {"single,": "marginal", "ddp,": "no", "fsdp,": "fits"}


def test_the_page_takes_a_configuration_first_and_functions_last():
    commands, _ = _commands()
    assert [one[1] for one in commands[:-1]] == ["config.json"] * (len(commands) - 1)
