"""A plan beside an accelerator: the simulated steps with real tensors, and what is said of both."""

import json
import signal
from multiprocessing import active_children

import pytest
import torch

from runners.__main__ import main
from runners.planner.answers.answer import GIB
from runners.planner.answers.question import Model
from runners.planner.simulated import outcomes
from runners.planner.simulated.one_rank import simulate_rank
from runners.planner.simulated.outcomes import Outcome, lines, outcome, outcome_apart
from runners.system import accelerator
from tests.processes import python
from tests.runners.questions import asked

QUESTION = asked("single", 1, microbatch=2, global_batch=2, precision="fp32")


def test_without_an_accelerator_there_are_no_outcomes(capsys, monkeypatch):
    monkeypatch.setenv("PROOFBOOK_DEVICE", "cpu")
    assert main(["plan", "outcomes", "gpt2-124m"]) == 2
    assert "need an accelerator" in capsys.readouterr().err


def test_an_outcome_is_that_of_one_device(capsys, monkeypatch):
    monkeypatch.setattr(accelerator, "num_devices", lambda: 1)
    monkeypatch.setattr(outcomes, "outcome_apart", lambda *_: Outcome("forward", 1, 1, 1))
    assert main(["plan", "outcomes", "gpt2-124m", "--sequence", "64"]) == 0
    title, *_ = capsys.readouterr().out.splitlines()
    assert title.startswith("gpt2-124m on one device of")
    assert "microbatch 1, global batch 1," in title


def test_the_steps_of_an_outcome_hold_what_is_simulated_here_and_in_a_process_apart():
    """With real tensors on this CPU; what an accelerator's allocator counts stays 0."""
    found = outcome(QUESTION, GIB, torch.device("cpu"))
    assert found.phase is None
    assert found.peak_bytes == pytest.approx(simulate_rank(QUESTION, 0).peak_bytes, rel=0.02)
    # A simulation that prepared this process hides its devices for good.
    assert outcome_apart(QUESTION, GIB, torch.device("cpu")) == found


def test_who_stops_the_command_waits_for_none_of_its_steps(tmp_path, monkeypatch):
    (tmp_path / "asleep.py").write_text("import time\n\ndef build():\n    time.sleep(600)\n")
    monkeypatch.syspath_prepend(tmp_path)
    model = Model(name="asleep", module="asleep:build", batch="asleep:build")
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.alarm(1)
    with pytest.raises(KeyboardInterrupt):
        outcome_apart(QUESTION.model_copy(update={"model": model}), GIB, torch.device("cpu"))
    signal.signal(signal.SIGALRM, before)
    assert not active_children()


def test_numbers_and_the_verdict_stand_beside_the_simulation_and_out_of_memory_alone():
    simulated = simulate_rank(QUESTION, 0)
    measured = Outcome(
        phase=None,
        peak_bytes=simulated.peak_bytes,
        allocated_bytes=round(simulated.allocated_bytes / 1.25),
        reserved_bytes=simulated.reserved_bytes,
    )
    peak, allocated, reserved, verdict = lines(simulated, measured, GIB)
    assert peak.endswith("+0.00%")
    assert allocated.endswith("+25.00%")
    assert reserved.endswith("+0.00%")
    assert verdict == "within 1 GiB: simulated to complete, completed"
    measured = Outcome(phase="backward", peak_bytes=1, allocated_bytes=1, reserved_bytes=1)
    (verdict,) = lines(simulated, measured, 1)
    assert verdict.endswith("simulated to run out of memory, ran out of memory in backward")


ALLOCATES = """
import json, random, torch
from runners.simulate.caching_allocator import Allocate, Free, replay

chance, events, held = random.Random(0), [], {}
for key in range(2000):
    if held and (len(held) == 40 or chance.random() < 0.45):
        events.append(Free(chance.choice(list(held))))
        del held[events[-1].key]
    else:
        most = chance.choice([700, 40_000, *(mib << 20 for mib in (1, 2, 9, 12, 33, 70))])
        events.append(Allocate(key, chance.randint(most // 2, most)))
        held[key] = torch.empty(events[-1].num_bytes, dtype=torch.uint8, device="cuda")
counted, modelled = torch.cuda.memory_stats(), replay(events)
kinds = ("allocated", "reserved")
print(json.dumps([[counted[f"{kind}_bytes.all.peak"] for kind in kinds],
                  list(modelled)]))
"""


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no accelerator")
def test_the_replay_reserves_what_this_machines_allocator_reserves():
    """In a process of its own, whose allocator has served nothing before."""
    device, model = json.loads(python("-c", ALLOCATES).stdout)
    assert model == device
