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

from proofbook.companions.planner.answers.answer import PlanAnswer
from proofbook.companions.planner.answers.devices import gpu_of
from proofbook.companions.planner.answers.law_of_time import Cluster
from proofbook.companions.planner.answers.question import TrainingSettings
from proofbook.companions.planner.simulated import cache
from proofbook.companions.planner.simulated.updates import RankOptimizer
from proofbook.runners.__main__ import main
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
        (["for", "meta-llama/Llama-3.1-8B"], "near it is the preset llama-8b, of 8.0 B"),
        (["for", "mistralai/Mixtral-8x7B-v0.1"], "near it is the preset mixtral-8x7b"),
        (["for", "nobody/Qwen-72B"], "get its file by `hf download nobody/Qwen-72B config.json"),
        (["for", "nobody/Qwen-72B"], "near it is the preset llama-70b"),
        (["for", "mistral-7b"], "no preset 'mistral-7b'; near it is the preset llama-8b"),
        ([*GPT2, "--gpu", "h1000"], "no device 'h1000' (did you mean h100?)"),
        ([*GPT2, "--gpu", "mi9"], "of another, name --memory, --flops and --links, and no --gpu"),
        ([*GPT2, "--cpu-offload"], "offloading to the host's memory is not planned"),
        ([*GPT2, "--inference"], "only training is planned, not the memory of inference"),
        ([*GPT2, "--tp=8"], "no option --tp: --strategies has it, such as fsdp.4+tp-sp.2"),
        ([*GPT2, "--seq-len", "8"], "no option --seq-len: --sequence has the tokens of a sample"),
        ([*GPT2, "--tensor-plans", "x"], "no option --tensor-plans (did you mean --tensor-plan?)"),
        ([*GPT2, "--gpu", "t4", "--precision", "bf16"], "T4 has no bf16"),
        ([*GPT2, "--frozen-bits", "4"], "has no effect without --lora"),
        ([*VISION, "--lora"], "--lora has no effect"),
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
def test_what_is_simulated_is_a_table_and_json(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(cache, "CACHE", tmp_path / "plans")
    path = tmp_path / "config.json"
    path.write_text(json.dumps(FEW_LAYERS))
    words = ["plan", "for", str(path), "--devices", "2", "--sequence", "64"]
    words += ["--strategies", "ddp,fsdp", "--simulate", "2"]
    assert main([*words, "--memory", "5.2", "--flops", "1e14", "--links", "1"]) == 0
    table = capsys.readouterr().out.partition("simulated:")[2].splitlines()
    assert [line.split()[:2] for line in table[3:]] == [["fits", "fsdp,"], ["marginal", "ddp,"]]
    assert main([*words, "--json", "--memory", "5.2"]) == 0
    first, second = json.loads(capsys.readouterr().out)
    assert [first["verdict"], second["verdict"]] == ["fits", "marginal"]
    assert first["ranks"][0]["at_peak"]["parameters_bytes"] > 0


@pytest.mark.builds
@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_ctrl_c_ends_the_command_in_one_line_and_leaves_no_process(tmp_path):
    words = [sys.executable, "-m", "runners", "plan", "for", "llama-70b", "--devices", "64"]
    words += ["--simulate", "2"]
    own = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(words, cwd=ROOT, env=own, stderr=subprocess.PIPE, text=True) as command:
        wait_until(lambda: len(marked(tmp_path)) > 1, lambda: command.poll() is None)
        command.send_signal(signal.SIGINT)
        _, said = command.communicate()
    assert command.returncode == 130
    own = [one for one in said.splitlines() if "strategies simulated" not in one]
    assert own[0] == "2 layouts to simulate; Ctrl-C keeps those that are done"
    assert len(own) == 2
    wait_until(lambda: not marked(tmp_path))


def test_what_was_answered_once_is_read(monkeypatch, tmp_path):
    asked_of = []

    def simulate(questions, num_workers):
        asked_of.extend(questions)
        return by_forms(questions)

    monkeypatch.setattr(cache, "answers", simulate)
    monkeypatch.setattr(cache, "CACHE", tmp_path / "plans")
    first, second = asked("fsdp"), asked("ddp")
    found = cache.cached([first])
    assert cache.cached([second, first])[1] == found[0]
    assert asked_of == [first, second]
    monkeypatch.setattr(cache, "engine_digest", lambda: "other code")
    cache.cached([first])
    assert asked_of == [first, second, first]


def plan(capsys, *words, code=0):
    """The lines that the command prints."""
    assert main(["plan", *words]) == code
    return capsys.readouterr().out.splitlines()


def test_the_same_question_has_the_same_answer_and_layouts_in_the_order_of_the_rule(capsys):
    words = ["for", "gpt2-124m", "--devices", "2", "--sequence", "1024", "--global-batch", "8"]
    usual = plan(capsys, *words)
    assert plan(capsys, *words) == usual
    title, verdict, first, *_ = usual
    assert title.startswith("gpt2-124m, 124.4 M parameters, on 2 devices of 79.65 GiB (H100 SXM)")
    assert title.endswith("global batch 8 (8,192 tokens)")
    assert verdict.startswith("fits:              yes, by closed forms with a margin of 12 %")
    assert first == "try first:         ddp-view, microbatch 4"


def test_what_is_assumed_is_said(capsys):
    title, *_ = plan(capsys, *GPT2, "--devices", "8")
    assert title.endswith("global batch 8 (8,192 tokens), assumed: name --global-batch")


def test_a_question_needs_no_torch_and_a_simulation_says_that_it_does(tmp_path):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise AssertionError('torch was loaded')")
    words = [sys.executable, "-m", "runners", "plan", "for", "llama-8b", "--devices", "8"]
    own = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    for gpu in ("h100", "4090"):
        done = subprocess.run([*words, "--gpu", gpu], cwd=ROOT, env=own, capture_output=True,
                              text=True, check=False)  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")


def test_without_devices_the_command_says_how_many(capsys):
    title, first, *_ = plan(capsys, *GPT2, "--memory", "80GB", "--sequence", "64")
    assert "on how many devices of 80 GiB" in title
    assert first.split()[:4] == ["1", "device", "single,", "microbatch"]


def test_a_no_names_what_would_turn_it(capsys):
    words = [*GPT2, "--devices", "1", "--memory", "3", "--sequence", "1024", "--microbatch", "4"]
    _, verdict, first, *_ = plan(capsys, *words, code=1)
    assert verdict.startswith("fits:              no; what needs least, single, microbatch 4")
    assert first.startswith("it fits with:      --")


def test_a_device_without_bf16_trains_in_autocast_and_nothing_else_is_advised(capsys):
    lines = plan(capsys, "for", "llama-1b", "--gpu", "T4", "--devices", "1", code=1)
    assert " autocast, adam" in lines[0]
    assert not any("bf16" in line for line in lines)


def test_the_exit_code_says_whether_a_named_layout_fits(capsys):
    words = [*GPT2, "--devices", "4", "--strategies"]
    plan(capsys, *words, "ddp,fsdp", "--memory", "8", code=0)  # fsdp does
    plan(capsys, *words, "ddp", "--memory", "2", code=1)


def test_a_named_pipeline_with_too_few_microbatches_is_told(capsys):
    words = [*GPT2, "--devices", "4", "--strategies", "1f1b", "--global-batch", "16"]
    *_, last = plan(capsys, *words, "--microbatch", "4", "--sequence", "64")
    assert last.startswith("fits")
    *_, last = plan(capsys, *words, "--microbatch", "8", "--sequence", "64")
    assert last.startswith("1f1b: 2 microbatches: at most 2 of the 4 ranks of the pipeline")


@pytest.mark.parametrize(
    ("typed", "planned"),
    [("zero3", "fsdp,"), ("FSDP", "fsdp,"), ("tp4", "tp.4,"), ("cp=4", "cp.4,")],
)
def test_words_of_other_programs_are_read(typed, planned, capsys):
    *_, row = plan(capsys, *GPT2, "--devices", "4", "--strategies", typed)
    assert row.split()[:2] == ["fits", planned]


@pytest.mark.parametrize(
    ("typed", "title"),
    [
        ("NVIDIA A100-SXM4-80GB", "A100 of 80 GB"),
        ("a100-40gb", "A100 of 40 GB"),
        ("NVIDIA A100 80GB PCIe", "A100 PCIe"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("Tesla V100-SXM2-16GB", "V100 of 16 GB"),
        ("RTX 4090", "GeForce RTX 4090"),
        ("AMD Instinct MI300X", "Instinct MI300X"),
    ],
)
def test_a_device_is_known_by_the_name_that_its_driver_prints(typed, title):
    assert gpu_of(typed).title == title


def test_how_a_number_was_read_is_said(capsys):
    title, *_ = plan(capsys, *GPT2, "--devices", "16", "--memory", "24GB", "--sequence", "1k")
    assert (
        "on 16 devices (2 nodes of 8) of 24 GiB (24GB read as 24 GiB, as cards are sold; " in title
    )
    assert "; rates of H100 SXM), sequence 1024, " in title
    title, *_ = plan(capsys, *GPT2, "--devices", "1x16", "--memory", "24564MiB", "--gpu", "4090")
    assert "on 16 devices (1 node of 16) of 23.99 GiB (rates of GeForce RTX 4090), " in title


@pytest.mark.parametrize("tokens", ["1e12", "1T", "1,000B"])
def test_so_many_tokens_take_at_least_as_long_as_their_operations(tokens, capsys):
    """Six for each weight and token, and those of attention, at the highest rate of 8 devices."""
    words = ["for", "llama-8b", "--devices", "8", "--global-batch", "64"]
    (line,) = (line for line in plan(capsys, *words, "--tokens", tokens) if "how long" in line)
    days = float(line.partition("no less than ")[2].split()[0])
    weights, attention = 6 * (8_030_261_248 - 128_256 * 4096), 6 * 32 * 4096 * 4096
    assert days == pytest.approx(1e12 * (weights + attention) / 8 / 989.5e12 / 86_400, rel=0.02)
    assert line.startswith("how long:          1e+12 tokens take no less than ")


def test_states_that_exceed_a_device_are_a_no_however_uncertain_the_rest_is(capsys):
    """Sixteen bytes for each of 1,557,611,200 parameters, on 24 GiB less driver and context."""
    words = ["for", "gpt2-1.5b", "--devices", "1", "--gpu", "3090"]
    _, verdict, *_ = plan(capsys, *words, code=1)
    assert verdict.startswith("fits:              no; ")


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
