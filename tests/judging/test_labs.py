"""Labs: each solution passes, and each wrong program fails where its file says that it does."""

from __future__ import annotations

import itertools
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import yaml

from proofbook.companions.labs import command
from proofbook.companions.labs.benches import BENCHES
from proofbook.companions.labs.command import report
from proofbook.companions.labs.grading import LENT, case_of, graded
from proofbook.companions.labs.shelf import Desk, labs
from proofbook.companions.labs.words import WrongFile, wrong_mistakes
from proofbook.generator.content.documents import read
from proofbook.runners.system import book
from proofbook.runners.system.errors import FixableError
from proofbook.runners.traces import digest
from proofbook.runners.traces.differences import changed
from proofbook.runners.traces.differences import wrong_programs as stated
from tests.processes import ROOT, ran

pytestmark = pytest.mark.ranks
LABS = {one.name: one for one in labs()}
# The trace of `labs` has all programs of all labs, and is stale once anything that grades changes.
# So the gate grades a sample, and `make soak` all: solutions, starters, and wrong programs.
SOLVED, STARTED, FAILED = [*LABS][::6], [*LABS][2::6], [*LABS][4::3]
WRONG = {(name, program.name): program for name, lab in LABS.items() for program in lab.wrong}


def fails_first(program, world_size):
    """The requirement that a wrong program says that it fails first; None where it passes."""
    parts = (part.split(" on ") for part in program.fails.split(", ") if " on " in part)
    by_ranks = dict(part[::-1] for part in parts)
    return by_ranks.get(str(world_size)) if by_ranks else program.fails


RIGHT = yaml.safe_load(Path(__file__).with_name("right.yml").read_text(encoding="utf-8"))
GRADED_FIRST = {
    "mean": "copies_in_numpy", "zero1": "moments_in_numpy", "clipped_stages": "not_waited"
}  # fmt: skip


@pytest.fixture
def written(tmp_path):
    """Writes a wrong program, or a right one that is stated as changes, as a file for a bench."""

    def write(name, stem):
        path, right = tmp_path / f"{name}_{stem}.py", RIGHT.get(f"{name}-{stem}")
        solved = (LABS[name].folder / "solved.py").read_text("utf-8")
        path.write_text(changed(solved, right) if right else WRONG[name, stem].text, "utf-8")
        return path

    return write


@pytest.fixture
def wrong_programs():
    """One of each lab in `FAILED`; `make soak` grades all, on two ranks as well."""
    return [*({name: stem for name, stem in WRONG if name in FAILED} | GRADED_FIRST).items()]


@pytest.fixture
def right_programs():
    """Solutions in other styles; `make soak` grades all of them."""
    return ["mean-all_in_flight", "vocabulary_loss-two_calls"]


@pytest.fixture
def cases():
    """Numbers of ranks and seeds in which a solution is graded; `make soak` grades it in more."""
    return [(4, 0)]


@pytest.fixture
def ranks_of():
    """On how many ranks a wrong program is graded: on two where it fails as on four."""
    return lambda one: [2 if fails_first(one, 2) == fails_first(one, 4) else 4]


@pytest.mark.parametrize("name", SOLVED)
def test_a_solution_passes(name, cases):
    assert_solved(name, cases)


def assert_solved(name, cases):
    """Grade a lab's solution in each case."""
    for world_size, seed in cases:
        grade = graded(BENCHES[name], LABS[name].folder / "solved.py", world_size, [seed])
        assert grade.is_solved, (world_size, grade.requirements, grade.ranks[0].failure)
        for row in grade.requirements:  # the limit that is printed is the one that decides
            assert row.observed is None or row.observed <= row.allowed


def test_a_solution_in_another_style_passes(right_programs, cases, written):
    for name, stem in (one.split("-") for one in right_programs):
        for world_size in {of for of, _ in cases}:
            grade = graded(BENCHES[name], written(name, stem), world_size, [0])
            assert grade.is_solved, (stem, world_size, grade.requirements, grade.ranks[0].failure)


def test_a_wrong_program_fails_where_it_says(wrong_programs, ranks_of, written):
    other = {}
    for name, stem in wrong_programs:
        program, path = WRONG[name, stem], written(name, stem)
        for world_size in ranks_of(program):
            grade = graded(BENCHES[name], path, world_size, [0])
            first = grade.first_failed
            kinds = {rank.failure.kind for rank in grade.ranks if rank.failure} - {"peer failed"}
            ends = {program.ends} - {""}
            requirement = first.id if first else None
            if requirement != fails_first(program, world_size) or kinds != ends:
                other[name, stem, world_size] = (first, kinds)
    assert other == {}


# What the words of formulas stand for, by the settings of a case and `n` ranks alone.
_PADDED = (
    "4 * n * (-(-num_words * width // n) + -(-width * width // n) + -(-width // n)"
    " + -(-num_outputs // n))"
)
_PARTS = "-(-words // {0}) * width + -(-hidden // {0}) * width + -(-outputs // {0})"
WORDS = {
    "mean": {
        "bytes of all gradients": "4 * (num_outputs + num_hidden_layers * width) * (width + 1)",
        "bytes of the largest bucket": "4 * max(num_outputs, 2 * width) * (width + 1)",
    },
    "ring": {"bytes of the tensor": "4 * num_elements"},
    "tokens": {
        "bytes of the gradients": "4 * (num_words * 16 + 16 * 16 + 16 + num_words * 17)",
        "bytes of the largest logits": "4 * 3 * (length + 6 * (n - 1)) * num_words",
    },
    "zero1": {"bytes of the parameters, each padded to a multiple of n": _PADDED},
    "fsdp_unit": {
        "steps": "2",
        "bytes of all parameters": "4 * 6 * (wide * (narrow + 1) + narrow * (wide + 1))",
        "bytes of all shards": "4 * 6 * (wide * (narrow + 1) + narrow * (wide + 1)) / n",
        "bytes of the largest layer": "4 * wide * (narrow + 1)",
        "bytes of the largest activations": "4 * num_samples * wide",
    },
    "tensor_mlp": {"tokens": "num_tokens", "width": "width"},
    "recompute": {
        "bytes of an activation": "4 * num_tokens * width",
        "bytes of the gradients": "4 * 4 * (8 * width * width + 5 * width)",
        "bytes of a random state": str(torch.get_rng_state().nbytes),
    },
    "accum_nosync": {
        "updates": "updates",
        "bytes of the parameters": "4 * (2 * width * width + 4 * width + 1)",
        "samples of a microbatch": "samples",
        "features": "width",
    },
    "dealt_sentences": {
        "updates": "updates",
        "bytes of the parameters": "4 * vocabulary * (2 * width + 1)",
    },
    "stuck_save": {
        "steps": "steps",
        "bytes of the parameters": "4 * ((features + 1 + blocks * (width + 1) + 12) * width + 12)",
    },
    "clipped_stages": {
        "steps": "steps",
        "neighbours": "min(2, n - 1)",
        "bytes of the activations": "4 * microbatches * samples * width",
    },
    "vocabulary_loss": {"tokens": "tokens"},
    "chunked_pair": {"bytes of a rank's tokens": "4 * tokens / n * width"},
    "norms_by_tokens": {
        "steps": "steps",
        "bytes of the activations": "4 * tokens * width",
        "bytes of the scale": "4 * width",
    },
    "seeds_by_axis": {
        "steps": "steps",
        "bytes of its activations": "4 * samples / (n / 2) * width",
        "bytes of its gradients": "4 * width * (width + hidden)",
    },
    "expert_layer": {
        "rows of the busiest rank": "busiest",
        "bytes of a token": "4 * width",
        "experts": "experts",
    },
    "two_tiers": {
        "bytes of the tensor": "4 * elements",
        "ranks of a node": "node_ranks",
        "nodes": "nodes",
    },
    "experts_doubled": {
        "steps": "steps",
        "bytes of its activations": "4 * samples / n * width",
        "bytes of the dense layer": "4 * width * width",
    },
    "balance_of_batch": {
        "steps": "steps",
        "bytes of the weights": "4 * 2 * width * experts",
        "experts": "experts",
    },
    "pushed_from_shard": {
        "steps": "steps",
        "bytes of the outputs": "4 * samples * width",
        "bytes of up and down": "4 * 2 * width * hidden",
    },
    "resumed_run": {},
    "four_write_two_read": {
        f"bytes of {what}": f"4 * ({rows})"
        for what, rows in {
            "the largest part of a writing rank": _PARTS.format("n"),
            "the largest part of a reading rank": _PARTS.format("(n // 2)"),
            "its largest tensor": "-(-words // (n // 2)) * width",
        }.items()
    },
    "later_weights": {"bytes of the weights": "4 * 2 * width * hidden"},
    "early_pointer": {},
    "ring_attention": {
        "bytes of a rank's keys and values": "2 * 4 * heads * tokens / n * width",
    },
    "exchanged_heads": {
        "bytes of a rank's queries": "4 * tokens / n * heads * width",
        "bytes of one head of its tokens": "4 * tokens / n * width",
    },
    "edges_of_shards": {
        "bytes of the keys": "4 * tokens * width",
        "bytes of the weights": "4 * (2 * words * width + 3 * width * width)",
    },
    "carried_state": {"bytes of a token": "4 * channels"},
    "chunked_loss": {
        "bytes of a chunk's logits": "4 * chunk * words",
        "bytes of the head": "4 * words * width",
        "bytes of the hidden states": "4 * tokens * width",
    },
    "shared_rounding": {"bytes of the gradients": "4 * 2 * elements"},
    "lost_updates": {"bytes of the gradient": "4 * elements"},
    "straddled_blocks": {
        "bytes of the weight in e4m3": "n * rows * width",
        "bytes of the largest values in float32": "4 * -(-n * rows // block)",
    },
    "slow_head": {
        "steps": "steps",
        "bytes of the activations": "4 * samples * width",
        "bytes of up and down": "4 * 2 * width * hidden",
    },
}
# What stands behind a number and says what it is for.
_WHAT_FOR = re.compile(r" (bytes for .*|blocks|bytes)(?= \*|$)")


def formula_value(lab, formula, settings, world_size):
    """A formula of `lab.yml` as a number; of several operations, the first."""
    known = {**settings, "n": world_size, "max": max, "min": min}
    text = formula.replace("`", "").replace("−", "-").replace("×", "*").replace("n, +", "n +")
    text = re.sub(r"^[\w ]+: |;.*$", "", text)
    for words in sorted(WORDS[lab], key=len, reverse=True):
        text = text.replace(words, str(eval(WORDS[lab][words], known)))
    text = _WHAT_FOR.sub("", text).replace("1,024", "1024").replace("2,048", "2048")
    return eval(re.sub(r"(?<=[\d)]) ?\(", " * (", text), known)


@pytest.mark.parametrize("name", LABS)
def test_a_formula_of_the_page_is_the_limit_of_the_command(name):
    formulas = {id_: one["formula"] for id_, one in LABS[name].requirements.items()}
    for world_size, seed in itertools.product((2, 4), (0, 1)):
        case = case_of(BENCHES[name], world_size, seed)
        for one in BENCHES[name].requirements(case):
            if one.allowed is not None:
                value = formula_value(name, formulas[one.id], case.settings, world_size)
                assert value == pytest.approx(one.allowed, rel=1e-12), (world_size, one.id)


@pytest.mark.parametrize("name", LABS)
def test_the_words_of_a_lab_name_its_requirements(name):
    one = LABS[name]
    laws = BENCHES[name].requirements(case_of(BENCHES[name], 2, 0))
    assert [*(law.id for law in laws), LENT] == [*one.requirements]
    assert len(one.words["task"].split()) <= 150
    assert one.wrong


@pytest.mark.parametrize("name", STARTED)
def test_a_starter_fails_where_its_words_say(name):
    assert_started(name)


def assert_started(name):
    """Grade what a reader begins with, on two ranks."""
    grade = graded(BENCHES[name], LABS[name].folder / "starter.py", 2, [0])
    assert grade.first_failed.id == LABS[name].words.get("starter_fails", "same")


def test_a_program_for_four_ranks_alone_fails_in_the_other_case(tmp_path):
    one = LABS["fsdp_unit"]
    solved = (one.folder / "solved.py").read_text(encoding="utf-8")
    file = tmp_path / "fsdp_unit.py"
    file.write_text(solved.replace("/= dist.get_world_size()", "/= 4"), encoding="utf-8")
    assert graded(BENCHES[one.name], file, 4, [0]).is_solved
    assert graded(BENCHES[one.name], file, 2, [0]).first_failed.id == "same"


def test_advice_fits_what_differs(written):
    name, differs = "recompute", "random numbers after step 0"
    one = LABS[name]
    grade = graded(BENCHES[name], written(name, "state_not_put_back"), 2, [0])
    assert grade.first_failed.what == differs
    printed = "\n".join(report(one, [grade]))
    fails = one.words["requirements"]["same"]["fails_in"]
    assert [said in printed for said in fails.values()] == [False, False, True]


def test_the_list_and_a_wrong_call_do_not_load_torch(tmp_path):
    for words, exit_code in ([], 0), (["--help"], 0), (["nope"], 2):
        command = [sys.executable, "-X", "importtime", "-m", "runners", "lab", *words]
        ended = ran(command, tmp_path, {"PYTHONPATH": str(ROOT)})
        assert ended.returncode == exit_code
        assert not re.search(r"\| +torch$", ended.stderr, re.MULTILINE)


def test_a_reader_who_cannot_write_there_is_told_where(tmp_path):
    (tmp_path / "labs").write_text("no folder")
    with pytest.raises(FixableError, match="labs is no folder of files; rename"):
        Desk(tmp_path / "labs").start(LABS["ring"], "proofbook")
    Desk(tmp_path / "mine").start(LABS["ring"], "proofbook")
    assert "proofbook lab ring" in (tmp_path / "mine" / "ring.py").read_text(encoding="utf-8")


def test_assistants_find_once_that_they_should_give_hints_and_how_a_lab_is_graded(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    desk = Desk(command.FOLDER)
    command._begin(LABS["ring"], desk)
    advice = tmp_path / "labs" / "AGENTS.md"
    said = advice.read_text(encoding="utf-8")
    assert "Give hints, not solutions" in said
    assert "`python -m runners lab NAME` grades" in said  # as it is called in this clone
    named = set(re.findall(r"`([a-z]+\.(?:py|yml))`", said))
    assert {"solved.py", "wrong.yml", "lab.yml"} == named
    assert all((lab.folder / name).is_file() for lab in LABS.values() for name in named)
    assert all(lab.words["hints"] for lab in LABS.values())
    advice.unlink()
    command._begin(LABS["mean"], desk)  # a reader who deletes it has decided
    assert {path.name for path in advice.parent.iterdir()} == {"ring.py", "mean.py"}


def test_the_changes_of_a_wrong_program_must_fit_the_solution_and_make_python(tmp_path):
    (tmp_path / "solved.py").write_text('"""Right."""\none = 1\ntwo = 2\n')
    changes = ["-three = 3", "-one = 1\n      +one = 3)", "-one = 1", "-one = 1\n      *two"]
    text = "programs:\n" + "".join(
        f"  p{number}:\n    mistake: A.\n    fails: same\n    changes: |\n      {one}\n"
        for number, one in enumerate(changes)
    )
    (tmp_path / "wrong.yml").write_text(text)
    evidence = SimpleNamespace(book=SimpleNamespace(root=tmp_path))
    errors = wrong_mistakes(evidence, read("wrong.yml", text, WrongFile))
    assert [str(error) for error in errors] == [
        "wrong.yml:6:7: 'three = 3' is no line of the program; copy it from there, as it is "
        "indented",
        "wrong.yml:11:7: with these changes it is no Python: unmatched ')': 'one = 3)'",
        "wrong.yml:23:7: mark lines with @ or -, and behind them those to add with +",
    ]


# --- several machines in one book


def test_all_that_grades_labs_is_behind_their_traces():
    covered = {*digest.covered_files(book.experiment_files()["labs"])}
    judging = (*ROOT.glob("runners/judging/ranks.py"), *ROOT.glob("companions/labs/benches/*.py"))
    assert covered >= {ROOT / "companions" / "labs" / "grading.py", *judging}
    programs = {*ROOT.glob("content/topics/*/labs/*/solved.py")}
    for file in ROOT.glob("content/topics/*/labs/*/wrong.yml"):
        programs |= {program.path for program in stated(file)}
    assert {ROOT / one for one in digest.program_digests("labs")} == programs
