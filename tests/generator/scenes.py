"""What happens to the frozen book: runs that end otherwise, other machines, tries, more content.

Each scene changes a copy of the book and gives the book as it is then. `test_visible_text.py` keeps
what its pages say otherwise.
"""

import json

from proofbook.generator.content.reading import load
from tests.recorded import as_recorded, write

AVERAGED, WHOLE = "tiny_training.averaged", "tiny_memory.whole"
SKIPPED = {"status": "skipped", "reason": "one core", "ranks": []}


def a_law_breaks_with_its_run(copy):
    copy.change_run("tiny_memory.halves_budget", status="failed")


def a_run_that_no_claim_needs_surprises(copy):
    copy.change_run(WHOLE, expected_status="out_of_memory")


def a_run_was_paced(copy):
    copy.change_run(WHOLE, nature="paced")


def a_run_was_simulated(copy):
    copy.change_run(WHOLE, nature="simulated")


def a_run_was_replayed(copy):
    copy.change_run("tiny_training.drifting", nature="simulated")  # without memory


def runs_used_several_backends(copy):
    for run, backend in (("averaged", "nccl"), ("drifting", "gloo"), ("single", "gloo")):
        copy.change_run(f"tiny_training.{run}", backend=backend, device="cuda")


def ranks_shared_cores(copy):
    timing = copy.recorded(AVERAGED)["timing"]
    copy.change_run(AVERAGED, timing={**timing, "oversubscribed": True})


def a_program_printed_markup(copy):
    copy.change_run(AVERAGED, printed=["the mean is <b>1.5</b>"])


def _stage(copy, **changes):
    """Change the stage in which the averaged run trains."""
    *before, train = copy.recorded(AVERAGED)["stages"]
    copy.change_run(AVERAGED, stages=[*before, {**train, **changes}])


def a_stage_recorded_nothing(copy):
    _stage(copy, ranks=[], moves=[])


def a_stage_broadcast(copy):
    _stage(copy, moves=[{"operation": "broadcast", "source": 0, "destination": None, "bytes": 64}])


def ranks_differ_in_a_stage(copy):
    first, second = copy.recorded(AVERAGED)["stages"][-1]["ranks"]
    _stage(copy, ranks=[first, {**second, "shape_out": [20, 9], "bytes": 720}])


def a_rule_is_judged_for_each_rank(copy):
    copy.append("claims/tiny_memory.yml", (
        "  - id: of-each\n    says: Every rank holds parameters.\n"
        "    predicted: \"0\"\n    relation: above\n"
        "    observed: tiny_memory.halves.ranks | each('num_parameters')\n"
    ))  # fmt: skip
    copy.edit("topics/averaging/quiz.yml", "claim: replicas-drift}", "claim: of-each}")
    copy.edit("topics/averaging/quiz.yml", "asks: [parameter_digest]", "asks: [num_parameters]")


def a_topic_requires_another(copy):
    copy.edit("topics/averaging/topic.yml", "order: 2", "order: 2\nrequires: [sharding]")


def a_pitfall_asks_for_the_line_of_its_own_programs(copy):
    deep = "topics/sharding/deep.yml"
    asking = (copy.content / "topics/asking/quiz.yml").read_text()
    item = asking.partition("  - id: where-is-the-fault\n")[2].partition("  - id: ")[0]
    copy.append("topics/sharding/quiz.yml", f"  - id: which-line\n{item}")
    copy.edit(deep, "Splitting the wrong thing\n", "Splitting\n    commit: which-line\n")
    for name in ("wrong", "right"):
        old = (copy.content / deep).read_text().partition(f"    {name}: ")[2].partition("\n")[0]
        copy.edit(deep, old, item.partition(f"    {name}: ")[2].partition("\n")[0])


def a_program_repeats_two_statements(copy):
    """A run executed it; both sentences name it, and it stands once."""
    program = '"""torchrun --nproc-per-node 2 shown.py"""\n\nprint("what <it> showed")\n'
    document = json.loads(copy.trace("tiny_training").read_text())
    run = document["runs"]["averaged"] | {
        "settings": {"program": "content/retracted/shown.py"}, "printed": ["what <it> showed"],
    }  # fmt: skip
    write(copy.trace("repeats"), document | {"experiment": "repeats", "runs": {"shown": run}})
    (copy.content / "retracted").mkdir()
    (copy.content / "retracted" / "shown.py").write_text(program)
    text = (copy.content / "statements.yml").read_text()
    named = "    program: repeats.shown\n    uses: one layer\n    claim: "
    (copy.content / "statements.yml").write_text(text.replace("    claim: ", named))


def pages_are_written_by_hand(copy):
    sections = "".join(f"## Part {name}\n\nMore of it.\n\n" for name in "abcde")
    listing = "```listing\ntitle: Means\npath: content/topics/averaging/code/mean.py\n```\n"
    code = "`3` of `3`\n\n```python\nx = 3\n```\n"
    head = "---\ntitle: On fp32\ndescription: All of it\n---\n\n"
    lead = "It begins\nat {{ tiny_memory.whole.world_size }}.\n\n"
    text = f"{head}{lead}{sections}{code}\nBefore.\n\n{listing}\nAfter.\n"
    (copy.content / "pages").mkdir(exist_ok=True)
    (copy.content / "pages" / "about.md").write_text(text)


def another_machine_measured_all_but_a_run_skipped(copy):
    copy.add_machine("desk", "tiny_memory", "tiny_training")
    copy.change_run("tiny_memory.halves", "desk", **SKIPPED)


def a_simulated_run_is_about_no_machine(copy):
    another_machine_measured_all_but_a_run_skipped(copy)
    copy.change_run("tiny_memory.halves", nature="simulated")
    copy.change_run("tiny_memory.halves", "desk", nature="simulated")


def another_machine_measured_one_experiment(copy):
    copy.add_machine("desk", "tiny_training")


def a_run_ended_otherwise_on_another_machine(copy):
    copy.add_machine("desk", "tiny_memory", "tiny_training")
    copy.change_run(AVERAGED, "desk", expected_status="out_of_memory")


def a_step_is_not_slower_on_another_machine(copy):
    copy.add_machine("desk", "tiny_memory", "tiny_training")
    runs = copy.load().traces["tiny_training"].runs
    timing = runs["averaged"].timing.model_copy(update={"step": runs["single"].timing.step})
    copy.change_run(AVERAGED, "desk", timing=timing.model_dump(mode="json"))


def another_machine_decides_a_claim_otherwise(copy):
    """The reference machine's pages count it; times of shared cores are not judged there."""
    copy.add_machine("desk", "tiny_memory", "tiny_training")
    copy.change_run("tiny_memory.halves_budget", "desk", status="failed")
    timing = copy.recorded(AVERAGED)["timing"]
    copy.change_run(AVERAGED, "desk", timing={**timing, "oversubscribed": True})
    return copy.load("reference-frozen")


def only_this_machine_has_measured_an_experiment(copy):
    copy.add_machine("desk", "tiny_memory", "tiny_training")
    copy.trace("tiny_memory").unlink()
    return copy.strict()


def only_this_machine_has_measured_a_run(copy):
    copy.add_machine("desk", "tiny_memory", "tiny_training")
    copy.remove_run("tiny_memory.halves_budget")
    return copy.strict()


def readers_tried(copy):
    """A run with other settings, one that diverged, and a file that is no try; served."""
    loss = "tiny_training.averaged.epochs[-1].loss"
    of_single = loss.replace("averaged", "single")
    copy.edit("topics/averaging/try.yml", f"value: {loss}", f"value: {loss} / {of_single}")
    (copy.content / "tries").mkdir()
    document = json.loads(copy.trace("tiny_training").read_text())
    run = document["runs"]["averaged"]
    other = run | {"settings": run["settings"] | {"learning_rate": 0.2}, "world_size": 4}
    other["epochs"] = [*run["epochs"][:-1], {**run["epochs"][-1], "loss": 0.75}]
    tries = {"1": other, "2": run | {"status": "diverged", "epochs": []}}
    for name, one in tries.items():
        as_recorded(one)
        written = {"runs": {"averaged": one}, "machine": "cpu-of-a-reader"}
        path = copy.content / "tries" / f"{AVERAGED}-{name}.json"
        write(path, document | written | {"recorded_at": "2026-02-03T04:05:06Z"})
    (copy.content / "tries" / "odd.json").write_text("{")
    return load(copy.content, None, lambda _: False, with_tries=True)


SCENES = [
    one
    for name, one in list(globals().items())
    if getattr(one, "__module__", None) == __name__ and name[0] != "_"
]
