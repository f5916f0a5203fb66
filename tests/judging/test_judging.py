"""The judge: what agrees, what differs, and what it must never call the same."""

from __future__ import annotations

import subprocess
import sys
from functools import cache

import pytest
import torch

from proofbook.runners.core.trace.measured import Memory
from proofbook.runners.judging import comparison
from proofbook.runners.judging.judged import JudgedProgram
from proofbook.runners.judging.ranks import MeteredCall, ProgramFailure, RankResult, run
from tests.conftest import ROOT
from tests.judging import programs

pytestmark = pytest.mark.ranks
BYTES = 4 * programs.SIZE
judged = cache(JudgedProgram)  # a program that several tests look at runs once


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_what_agrees_with_one_process_passes(world_size):
    program = judged(programs.averaged, world_size)
    program.assert_same_as_one_process(programs.mean(world_size))


@pytest.mark.parametrize(
    ("factor", "says"),
    [(2.0, r"rank 0.*all elements are 2 times as large"), (1 + 1e-5, "gradient differs")],
)
def test_a_factor_is_named_and_an_error_of_one_in_a_hundred_thousand_differs(factor, says):
    with pytest.raises(AssertionError, match=says):
        judged(programs.averaged, 2, factor).assert_same_as_one_process(programs.mean(2))


def test_a_shard_is_compared_with_its_rows_alone():
    share = comparison.first_rows
    judged(programs.scattered, 4).assert_same_as_one_process(programs.mean(4), share=share)
    with pytest.raises(AssertionError, match="its shape on rank 0"):
        judged(programs.scattered, 4).assert_same_as_one_process(programs.mean(4))


@pytest.mark.parametrize("program", [programs.forgetful, programs.raises_on_the_last])
def test_what_was_not_compared_is_no_agreement(program):
    with pytest.raises(AssertionError, match="gradient not compared"):
        judged(program, 2).assert_same_as_one_process(programs.mean(2))


def test_bytes_are_counted_by_operation_and_what_is_not_named_may_not_be_called():
    sends = {"reduce_scatter": BYTES, "all_gather": BYTES}
    judged(programs.scattered, 4).assert_sends(sends)
    judged(programs.averaged, 4).assert_sends({"all_reduce": 2 * BYTES}, at_most=True)
    with pytest.raises(AssertionError, match=f"all_reduce, expected {BYTES - 1:,} bytes"):
        judged(programs.averaged, 4).assert_sends({"all_reduce": BYTES - 1})
    with pytest.raises(AssertionError, match="reduce_scatter, expected at most 0 bytes"):
        judged(programs.scattered, 4).assert_sends({"all_gather": BYTES}, at_most=True)


def test_a_ring_sends_half_as_much_for_each_half_of_an_all_reduce():
    whole = comparison.sent_over_a_ring([MeteredCall("all_reduce", 8)], 4)
    halves = [MeteredCall("reduce_scatter", 8), MeteredCall("all_gather", 8)]
    assert whole == comparison.sent_over_a_ring(halves, 4) == 12


def test_a_gather_that_returns_the_whole_counts_the_whole():
    judged(programs.gathered_by_return, 2).assert_sends({"all_gather": BYTES})


def test_calls_are_compared_in_their_order():
    judged(programs.scattered, 2).assert_calls(["reduce_scatter", "all_gather"])
    with pytest.raises(AssertionError, match="called reduce_scatter, all_gather; expected"):
        judged(programs.scattered, 2).assert_calls(["all_gather", "reduce_scatter"])


def test_a_call_that_is_repeated_is_printed_once():
    calls = tuple(MeteredCall(operation, 4) for operation in ("send", "recv", "recv"))
    found = comparison.order([RankResult(0, calls=calls)], ["all_reduce"] * 72)
    assert found.says == "rank 0 called send, recv (2 times); expected all_reduce (72 times)"


def test_a_peak_is_above_what_was_held_before():
    num = 1 << 18
    judged(programs.holds, 1, num).assert_peak(4 * num + 64)
    with pytest.raises(AssertionError, match="rank 0 held"):
        judged(programs.holds, 1, num).assert_peak(4 * num - 64)


def results(*peaks):
    """A rank for each peak in bytes; one that failed has none."""
    failure = ProgramFailure("exception", "it ended")
    return [
        RankResult(rank, failure=failure) if peak is None
        else RankResult(rank, memory=Memory(peak_bytes=peak))
        for rank, peak in enumerate(peaks)
    ]  # fmt: skip


@pytest.mark.parametrize(("peak", "state"), [(150, "agrees"), (151, "differs")])
def test_a_buffer_that_may_be_freed_late_is_allowed_once(peak, state):
    assert comparison.peak(results(peak), 100, slack=50).state == state


@pytest.mark.parametrize(
    ("peaks", "state", "rank", "observed"),
    [
        ((None, 90, 120, 150), "differs", 2, 120),  # which is certain, whatever a failed rank did
        ((90, None, 95, None), "not compared", 1, None),
        ((90, 95, 80), "agrees", None, 95),
    ],
)
def test_of_all_ranks_the_first_that_differs_decides_then_one_that_failed(
    peaks, state, rank, observed
):
    decides = comparison.peak(results(*peaks), 100)
    assert (decides.state, decides.rank, decides.observed) == (state, rank, observed)


def test_calls_may_be_left_out_but_not_exchanged_or_added_where_most_are_stated():
    expected = ["reduce_scatter", "all_reduce", "all_gather"]

    def state(*called):
        calls = tuple(MeteredCall(operation, 4) for operation in called)
        return comparison.order([RankResult(0, calls=calls)], expected, at_most=True).state

    assert state(*expected) == state("all_reduce") == state("reduce_scatter", "all_gather")
    assert state(*expected) == "agrees"
    assert state("all_gather", "reduce_scatter") == state("all_reduce", "all_reduce") == "differs"


def test_a_failure_names_the_programs_own_line_and_not_what_its_peers_met():
    first, last = judged(programs.raises_on_the_last, 2).ranks
    assert last.failure.message == "ValueError: no samples left"
    assert last.failure.code == 'raise ValueError("no samples left")'
    assert first.failure.kind == "peer failed"
    assert first.failure.code == "dist.barrier()"


def test_ranks_that_hang_are_ended_and_each_says_where_it_waits():
    first, second = run(programs.one_never_comes, 2, quiet_seconds=1)
    assert [one.failure.kind for one in (first, second)] == ["hung", "hung"]
    assert first.failure.code == "dist.all_reduce(torch.ones(4))"
    assert second.failure.code == "time.sleep(600)"


def test_a_death_is_no_hang():
    assert run(programs.dies, 2)[1].failure.message == "the process died of SIGSEGV"


def test_a_peer_that_has_waited_long_still_says_what_a_death_did_to_it():
    first, _ = run(programs.dies_after_seconds, 2)
    assert first.failure.kind == "exception"
    assert first.failure.code == "dist.all_reduce(torch.ones(4))"


def test_it_is_silent_and_leaves_no_process():
    """Also where a program is interrupted: the ranks end with the process that asked for them."""
    program = (
        "from proofbook.runners.judging.ranks import run\n"
        "from tests.judging import programs\n"
        "run(programs.one_never_comes, 2, quiet_seconds=60)\n"
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE) as started:
        with pytest.raises(subprocess.TimeoutExpired):
            started.wait(4)
        started.kill()
        assert started.stderr.read() == b""  # until the last process that holds it has ended


def test_nothing_common_is_read_into_noise():
    one = torch.randn(100, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert comparison.common_factor(3 * one, one) == pytest.approx(3)
    assert comparison.common_factor(one + 0.1, one) is None
    assert comparison.common_factor(one, one) is None


def test_a_late_rank_shows_what_its_peers_do_not_await():
    first, last = (one.returned for one in run(programs.read_too_early, 2))
    assert (first["awaited"] == 4).all()
    assert first["read"][0] == 1  # the last rank was late
    assert last["read"][1] == 2  # and then the first one


def test_what_a_program_leaves_behind_is_listed():
    careful, careless = (
        run(programs.leaves_things_behind, 2, is_careful)[1] for is_careful in (True, False)
    )
    assert (careful.changed, careful.beside, careful.kept_bytes) == ((), (), 0)
    assert careless.changed == (
        "requires_grad of inputs is True, and was False",
        "the training mode of model is False, and was True",
    )
    assert sorted(careless.beside) == ["barrier", "new process group", "object collective"]
    assert careless.kept_bytes == BYTES
    assert next(comparison.undisturbed([careful])).state == "agrees"
    found = next(comparison.undisturbed([careless], allowed=careless.beside))
    assert (found.state, found.rank) == ("differs", 1)
    assert next(comparison.kept([careless], BYTES - 1)).state == "differs"


@pytest.mark.parametrize("kind", ["array", "shared", "list", "state", "parameter"])
def test_what_no_operation_shows_is_counted_to_the_byte(kind):
    seen = run(programs.keeps_what_no_operation_shows, 1, kind)[0]
    kept = torch.get_rng_state().nbytes if kind == "state" else 8 * programs.SIZE
    assert seen.kept_bytes == kept
    assert seen.memory.peak_bytes == kept + 8 * programs.SIZE + BYTES  # an array and a tensor


def test_a_message_to_another_rank_than_the_one_that_is_named_differs():
    seen = [RankResult(rank, calls=(MeteredCall("send", 4, rank, 1 - rank),)) for rank in range(2)]
    assert [one.state for one in comparison.messages(seen, lambda rank: 1 - rank)] == ["agrees"] * 2
    assert [one.state for one in comparison.messages(seen, lambda rank: 1)] == ["agrees", "differs"]


def test_what_ranks_print_is_labelled_and_cut(capsys):
    run(programs.prints_without_end, 2)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "[rank 0] line 0"
    assert {line.partition("]")[0] for line in lines} == {"[rank 0", "[rank 1"}
    assert lines[-1] == "[rank 1] … and more, which is left out"
    assert len(lines) < 1000
