"""Figures that readers operate: their states, and what is drawn in each, against the traces."""

import base64
import json
import math
import re
import xml.etree.ElementTree as ET
import zlib
from collections import Counter
from functools import partial
from html import unescape
from itertools import pairwise

import pytest

from proofbook.generator.content.exhibit import Figure
from proofbook.generator.kinds.figures import step_rules
from proofbook.generator.kinds.figures.drawing import NARROW, WIDE
from proofbook.generator.kinds.figures.placement_figure import placement
from proofbook.generator.kinds.figures.play import frame, grid_views, line_view, scores_view
from proofbook.generator.kinds.figures.play.mesh_view import groups
from proofbook.generator.kinds.figures.play.states import RULES, faults, reported, states
from proofbook.generator.printing.folio import Folio
from proofbook.generator.values.evaluation import Evidence
from proofbook.generator.website import publish
from tests.conftest import ROOT

REFERENCE = "reference-cpu-2c"
LOOKS_OF_RANKS = {"pb-series-a", "pb-series-b", "pb-series-d"}


@pytest.fixture(scope="module")
def evidence(real):
    return Evidence(real)


def figures(evidence, kind):
    """Every figure of a kind in the book, by its topic and id."""
    return {
        (topic.id, figure.id): figure
        for topic in evidence.book.topics
        for lesson in topic.lessons.values()
        for figure in getattr(lesson.model, "figures", [])
        if figure.kind == kind
    }


@pytest.fixture(scope="module")
def played(evidence):
    """Those that readers operate."""
    return figures(evidence, "play")


@pytest.fixture
def folio(evidence):
    return Folio(evidence, evidence, path="topics/one/two.md")


def recorded(path):
    experiment, run = path.split(".")
    trace = ROOT / "content" / "traces" / REFERENCE / f"{experiment}.json"
    return json.loads(trace.read_text())["runs"][run]


def written(**changes):
    """A small figure over real runs, as YAML would give it."""
    play = {
        "task": "Choose.",
        "controls": [{"label": "Ranks", "reads": "run.world_size"}],
        "shows": ["sent"],
        "facts": [{"label": "Ranks", "value": "run.world_size"}],
    }
    runs = changes.pop("runs", ["sharding.ddp_1", "sharding.ddp_2"])
    return Figure.model_validate(
        {"id": "small", "kind": "play", "title": "T", "caption": "C", "runs": runs,
         "play": play | changes}
    )  # fmt: skip


def meshes(outer, inner, node=2, **more):
    axes = [{"name": "outer", "size": outer}, {"name": "inner", "size": inner}]
    return {"shows": ["mesh"], "meshes": [{"node": node, "axes": axes} | more]}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"runs": ["sharding.ddp_2", "sharding.zero_2"]}, "is the same state as sharding.ddp_2"),
        ({"facts": [{"label": "A", "value": "run.settings.nothing"}]}, "nothing"),
        ({"controls": [{"label": "A", "reads": "run.ranks"}]}, "run.ranks"),
        ({"controls": [{"label": "A", "words": {"sharding.ddp_1": "B"}}]},
         "sharding.ddp_2 has no option of 'A'"),
        ({"shows": ["units"]}, "units has no rule for sharding.ddp_1, a run of 'ddp'"),
        ({"runs": ["listings.tensor_smallest"], "shows": ["cells"],
          "cells": [{"label": "A", "fact": "sum", "told": "B"}]}, "reports no 'sum'; "),
        ({"runs": ["hybrid.hsdp"], **meshes(3, 2)}, "has 4 ranks: not 3 × 2 on nodes of 2"),
        ({"runs": ["hybrid.hsdp"], **meshes("run.world_size / 2", 2, node=3)}, "2 on nodes of 3"),
        ({"runs": ["hybrid.hsdp"], **meshes(2, 2, exchanged="ddp")}, "no run of the figure has"),
        ({"runs": ["hybrid.hsdp"], **meshes(2, "run.settings.none")}, "not 2 × run.settings.none"),
    ],
)  # fmt: skip
def test_a_figure_whose_states_cannot_be_told_apart_or_read_is_refused(evidence, changes, said):
    assert list(faults(written(), evidence)) == []
    found = list(faults(written(**changes), evidence))
    assert len(found) == 1
    assert said in found[0][1]


def unpacked(script):
    packed = re.fullmatch(r'proofbook\.play\("[a-z0-9-]+","(.*)"\);\n', script.decode())[1]
    return json.loads(zlib.decompress(base64.b64decode(packed), -15))


def test_every_run_is_in_a_state_and_the_script_holds_every_state_and_the_page_the_first(
    played, folio
):
    for figure in played.values():
        _, found = states(figure, folio)
        assert sorted(run.path for one in found for run in one.runs) == sorted(figure.runs)
        picture = frame.play(figure, folio)
        held = unpacked(folio.assets[picture.play.script.removeprefix(folio.root)])
        assert held[0][1] == picture.play.drawn
        assert [tuple(where) for where, _ in held] == [state.at for state in found]
        assert len({drawn for _, drawn in held}) == len(held), f"{figure.id}: two states look alike"
        assert {row.state for row in picture.play.rows} == set(range(len(held)))


def test_every_look_of_a_figure_is_in_the_style_sheets(played, folio, rendered):
    style = (publish.style() + publish.assets()["assets/play.css"]).decode()
    drawn = [frame.play(figure, folio).play.drawn for figure in played.values()]
    drawn += re.findall(r"<svg.*?</svg>", "".join(rendered.values()), re.DOTALL)
    marks = re.sub("<svg[^>]*>", "", " ".join(drawn))
    classes = re.findall(r'class="([^"]*)"', marks)
    looks = {look for one in classes for look in one.split()}
    assert len(looks) > 30
    assert looks - set(re.findall(r"\.(pb-[a-z-]+)", style)) <= {"pb-series-b"}


def test_only_collectives_of_a_ring_are_drawn_as_sent_over_one(evidence, folio):
    placed = figures(evidence, "placement").values()
    drawn = " ".join(unescape(str(placement(figure, folio).drawings)) for figure in placed)
    sent = set(re.findall(r"(\w+): [^:;]*? sent per rank( over a ring)?", drawn))
    rings = {"all_reduce", "all_gather", "reduce_scatter", "broadcast"}
    assert {operation for operation, ring in sent if ring} <= rings
    assert {operation for operation, ring in sent if not ring} & {*rings} == set()
    assert ("send", "") in sent


def test_what_a_rank_sends_is_compared_and_not_the_payload_of_its_operations(played, folio):
    drawn = frame.play(played["sharding", "sharded"], folio).play.drawn
    sent = {name: {} for name in ("DDP", "ZeRO-1", "FSDP")}  # over two ranks
    for name, run in zip(sent, ("ddp_2", "zero_2", "fsdp_2"), strict=True):
        for one in recorded(f"sharding.{run}")["ranks"][0]["collectives"]:
            turns = 2 if one["operation"] == "all_reduce" else 1  # of a ring: sum, then share out
            sent[name][one["operation"]] = turns * one["bytes"] / 2 / 2**20
    said = re.findall(r'data-say="([a-z_]+): ([\d.]+)\sMiB"', drawn)
    wanted = [pair for held in sent.values() for pair in held.items()]
    assert [(name, float(size)) for name, size in said[: len(wanted)]] == [
        (name, pytest.approx(size, rel=5e-3)) for name, size in wanted
    ]
    dear, cheap = (sum(sent[name].values()) for name in ("FSDP", "DDP"))
    assert 1.4 < dear / cheap < 1.5  # half as much again, but for the root, which stays gathered


@pytest.mark.parametrize("rule", RULES["schedule"])
@pytest.mark.parametrize(("num_ranks", "num"), [(1, 1), (2, 8), (3, 3), (4, 2), (4, 16), (5, 7)])
def test_a_schedule_runs_everything_once_in_order_and_idles_as_the_closed_form_says(
    rule, num_ranks, num
):
    rows = step_rules.pipeline(rule, num_ranks, num, 2.0)
    ends = {(r, one.kind, one.name): one.end for r, row in enumerate(rows) for one in row}
    for rank, row in enumerate(rows):
        assert sorted((one.kind, one.name) for one in row) == sorted(
            (kind, str(n)) for kind in ("forward", "backward") for n in range(num)
        )
        assert all(first.end <= second.start for first, second in pairwise(row))
        for one in row:
            side = -1 if one.kind == "forward" else 1
            assert one.start >= ends.get((rank + side, one.kind, one.name), 0)
            if one.kind == "backward":
                assert one.start >= ends[rank, "forward", one.name]
    closed_form = (num_ranks - 1) / (num + num_ranks - 1)
    assert step_rules.idle_share(rows) == pytest.approx(closed_form)


def test_the_first_rank_holds_as_many_microbatches_as_the_run_counted(played):
    for path in played["pipeline-parallelism", "schedule"].runs:
        run = recorded(path)
        num, ranks = run["settings"]["num_microbatches"], run["world_size"]
        rule = "gpipe" if num == 1 else run["strategy"]
        rows = step_rules.pipeline(rule, ranks, num, run["settings"]["backward_ratio"])
        counted = [rank["measures"]["num_in_flight"] for rank in run["ranks"]]
        most = [max(n for _, n in step_rules.in_flight(row)) for row in rows]
        assert most == counted, path


def test_both_schedules_stand_in_one_drawing_over_the_same_time(played, folio):
    drawn = frame.play(played["pipeline-parallelism", "schedule"], folio).play.drawn
    wide, ends = drawn.partition("pb-narrow")[0], {}
    for title in ("GPipe", "1F1B"):
        assert f">{title}</text>" in wide
        boxes = re.findall(
            rf'x="([\d.]+)" y="[\d.]+" width="([\d.]+)" [^>]*data-say="{title}, rank 0, ', wide
        )
        assert len(boxes) == 16  # forward and backward of eight microbatches
        ends[title] = max(float(x) + float(width) for x, width in boxes)
    assert ends["GPipe"] == ends["1F1B"]


@pytest.mark.parametrize("run", ["ddp_42", "ddp_126", "after_backward_42", "after_backward_126"])
def test_a_step_over_a_link_takes_what_its_events_take_and_no_less_than_the_law_says(run):
    one = recorded(f"overlap.{run}")
    settings, num = one["settings"], one["settings"]["num_layers"]
    step = step_rules.overlapped(settings, overlaps=one["strategy"] == "ddp")
    backward = settings["backward_seconds"]
    forward, reducing = settings["computing_seconds"] - backward, settings["reducing_seconds"]
    # the law in closed form: either backward or the link has no gap
    if one["strategy"] == "ddp":
        end = forward + max(backward + reducing / num, backward / num + reducing)
    else:
        end = forward + backward + reducing
    assert step.end == pytest.approx(1000 * end)
    sent, ends = iter(step.sent), {a.name: a.end for a in step.computed if a.kind == "backward"}
    for name in ("4", "3", "2", "1") if one["strategy"] == "ddp" else ():
        bucket = next(sent)
        assert bucket.name == name
        assert bucket.start >= ends[name] - 1e-9
    assert one["timing"]["step"]["median_seconds"] >= 0.98 * end  # no faster than the law, measured


@pytest.mark.parametrize("run", ["fsdp_2", "fsdp_4", "fsdp_kept_2", "fsdp_kept_4"])
def test_a_play_of_fsdp_peaks_where_the_closed_form_does_and_calls_what_the_run_called(run):
    """Claims compare the closed form with the run's peaks."""
    one = recorded(f"sharding.{run}")
    sizes = [layer["bytes"] for layer in one["model"]["layers"]]
    step = step_rules.unit_step(sizes, one["world_size"], frees=one["strategy"] == "fsdp")
    settings = one["settings"]
    closed_form = settings["shared_bytes"] / one["world_size"] + settings["whole_bytes"]
    assert step.peak_bytes == closed_form
    counts = Counter(action.kind for row in step.rows for action in row)
    called = {c["operation"]: c["count"] for c in one["ranks"][0]["collectives"]}
    assert counts["gather"] == called["all_gather"]
    assert counts["reduce"] == called["reduce_scatter"]


@pytest.mark.parametrize("num", [2, 3, 4, 5])
def test_a_ring_ends_with_the_sum_of_all_ranks_on_each_and_no_sooner(num):
    rows = grid_views.start(num)
    whole = [sum(column) for column in zip(*rows, strict=True)]
    for step in range(2 * (num - 1)):
        assert rows != [whole] * num
        rows = grid_views.after(rows, step)
    assert rows == [whole] * num


@pytest.mark.parametrize(
    "way", ["ring_4", "ring_4_head_tail", "gather_4", "packed_head_tail", "packed_each_document"]
)
def test_cells_of_an_attention_belong_to_ranks_and_turns_as_the_run_counted_scores(evidence, way):
    run = evidence.book.run(f"sequences.{way}")
    settings, cell = run.settings, run.settings["num_tokens"] // scores_view.SIZE
    counted = [[0] * len(of) for of in scores_view.turn_scores(run)]
    for rank, turn, row, first, end in scores_view.computed(run):
        on_diagonal = end == row + 1  # a cell that the mask cuts
        scores = (end - first) * cell**2 - on_diagonal * cell * (cell - 1) // 2
        counted[rank][turn] += scores * settings["num_query_heads"]
    assert counted == scores_view.turn_scores(run)


@pytest.mark.parametrize("name", ["transformer.tensor_parallel", "tensor_parallel.sequence_2"])
def test_a_split_block_communicates_as_often_as_the_run_did(name):
    run = recorded(name)
    ways = grid_views.passes(run["strategy"])
    drawn = Counter(sent for way in ways.values() for _, sent in way.values() if sent)
    size = run["settings"]["hidden_state_bytes"]
    for collective in run["ranks"][0]["collectives"]:
        if collective["operation"] in drawn:
            num = drawn.pop(collective["operation"]) * run["settings"].get("num_layers", 1)
            assert collective["count"] == num
            parts = run["world_size"] if collective["operation"] == "all_gather" else 1
            assert collective["bytes"] == num * size / parts
    assert not drawn


@pytest.mark.parametrize("run", ["gather_first", "ring", "ring_short"])
def test_products_over_arriving_tokens_use_what_is_there_and_end_as_the_closed_form_says(run):
    one = recorded(f"tensor_degree.{run}")
    settings, num, waits = one["settings"], one["world_size"], run == "gather_first"
    rows = step_rules.arrivals(settings, num, waits=waits)
    product = 1000 * settings["computing_seconds"] / settings["num_pairs"] / num
    way = 1000 * settings["sending_seconds"] / settings["num_pairs"] / (num - 1)
    overlapped = (num - 1) * max(product, way) + product
    pair = num * product + (num - 1) * way if waits else overlapped
    ends = [row[-1].end for row in rows[::2]]
    assert ends == [pytest.approx(settings["num_pairs"] * pair)] * num
    assert one["timing"]["step"]["median_seconds"] >= 0.98 * ends[0] / 1000
    for rank, (multiplied, arrived) in enumerate(zip(rows[::2], rows[1::2], strict=True)):
        has = {str(rank): 0.0} | {act.name: act.end for act in arrived[: num - 1]}
        assert len(has) == num
        first = multiplied[: 1 if waits else num]  # of the products
        assert {act.name for act in first} == ({f"0–{num - 1}"} if waits else {*has})
        assert all(act.start >= has.get(act.name, max(has.values())) - 1e-9 for act in first)
        before = [str((rank - 1) % num), *(act.name for act in rows[2 * ((rank - 1) % num) + 1])]
        assert [act.name for act in arrived[: num - 1]] == before[: num - 1]  # passed on in turn


@pytest.mark.parametrize("run", ["in_turn", "overlapped"])
def test_microbatches_take_turns_on_a_rank_and_its_link(run):
    one = recorded(f"dispatch.{run}")
    computed, sent = step_rules.turns(one["settings"], one["strategy"])
    computing, sending = (
        1000 * one["settings"][f"{name}_seconds"] for name in ("computing", "sending")
    )
    for row, total in ((computed, computing), (sent, sending)):
        assert sum(act.end - act.start for act in row) == pytest.approx(total)
        assert all(before.end <= after.start + 1e-9 for before, after in pairwise(row))
    alone = sending / len(sent) if run == "overlapped" else sending  # sends that nothing hides
    assert sent[-1].end == pytest.approx(computing + alone)
    for name in "12":  # a microbatch is computed and sent by turns
        own = sorted((act.start, act.end) for act in [*computed, *sent] if act.name == name)
        assert all(before[1] <= after[0] + 1e-9 for before, after in pairwise(own))


def held(drawn):
    """A drawing without the pale cells that a play has before it comes to them."""
    return re.sub(r'<g class="pb-to-come">.*?</g>', "", drawn)


def drawn_cells(figure, folio):
    """The numbers that a figure of cells has drawn at its end: of each row, of each rank."""
    drawn = frame.play(figure, folio).play.drawn
    words = unescape(held(str(drawn))).partition("pb-narrow")[0].replace("−", "-")
    placed = re.findall(r'<text[^>]* x="([\d.]+)" y="([\d.]+)"[^>]*>([^<]+)</text>', words)
    lines = {}
    for x, y, word in placed:
        if re.fullmatch(r"-?[\d.]+", word):
            lines.setdefault(float(y), []).append((float(x), float(word)))
    rows = [[number for _, number in sorted(lines[y])] for y in sorted(lines)]
    return [[row[: len(row) // 2], row[len(row) // 2 :]] for row in rows]


def test_the_digits_of_two_products_are_those_of_plain_sums(played, folio):
    token, above, below, hidden, left, right, part, whole = drawn_cells(
        played["tensor-parallelism", "columns-rows"], folio
    )
    for n in range(2):
        lines = zip(above[n], below[n], strict=True)
        assert hidden[n] == [max(0, token[n][0] * a + token[n][1] * b) for a, b in lines]
        lines = zip(left[n], right[n], strict=True)
        assert part[n] == [hidden[n][0] * a + hidden[n][1] * b for a, b in lines]
    assert whole == [[a + b for a, b in zip(*part, strict=True)]] * 2


def test_the_digits_of_a_divided_loss_are_those_of_the_closed_form(played, folio):
    rows = drawn_cells(played["tensor-parallelism", "vocabulary"], folio)
    logits, largest, most, powers, sums, whole, label, labels, loss = rows
    near = partial(pytest.approx, rel=5e-3)  # three digits are drawn
    assert largest == [[max(own)] for own in logits]
    assert most == [[max(logits[0] + logits[1])]] * 2
    assert powers == [near([math.exp(z - most[0][0]) for z in own]) for own in logits]
    assert sums == [near([sum(math.exp(z - most[0][0]) for z in own)]) for own in logits]
    assert whole == [near([sums[0][0] + sums[1][0]])] * 2
    assert label == [logits[0][:1], [0]]  # the label is the first word
    assert labels == [logits[0][:1]] * 2
    of_all = math.log(sum(math.exp(z) for z in logits[0] + logits[1]))
    assert loss == [near([of_all - logits[0][0]])] * 2


def test_cells_appear_in_order_and_only_what_all_ranks_have_is_filled(played, folio):
    figure = played["tensor-parallelism", "vocabulary"]
    picture = frame.play(figure, folio).play
    assert len(picture.moments) == sum(row.told is not None for row in figure.play.cells)
    filled = re.findall(
        r'<rect class="pb-compute"[^>]*/><text[^>]*>([^<]+)<',
        held(str(picture.drawn)).partition("pb-narrow")[0],
    )
    assert len(filled) == 2 * 4  # the three combined numbers, and the loss
    assert filled[::2] == filled[1::2]


@pytest.mark.parametrize("layout", [WIDE, NARROW])
def test_tokens_keep_the_colour_of_their_expert_and_arrows_join_cells_of_one_colour(
    played, folio, layout
):
    """By the program: tokens 2, 5 and 8 choose expert 0, which multiplies by 10."""
    figure = played["meshes-and-experts", "dispatch"]
    (state,) = frame.VIEWS["cells"](states(figure, folio)[1], figure, folio)
    drawn = held(str(state.draw(layout).svg("a", "T", "D", "c")))
    colours = re.findall(r'<rect class="pb-(series-.) pb-span"[^>]*/><text[^>]*>([^<]+)<', drawn)
    by_colour = {look: {word for of, word in colours if of == look} for look, _ in colours}
    assert by_colour == {
        "series-a": {"2", "5", "8", "0", "20", "50", "80"},
        "series-b": {*"13467", "100", "300", "400", "600", "700"},
    }
    boxes = [
        (box.attrib["class"].split()[0], *(float(box.attrib[name]) for name in ("x", "y", "width")))
        for box in ET.fromstring(drawn).iter("rect")
        if "pb-span" in box.attrib["class"]
    ]
    arrows = re.findall(r'd="M([\d.]+),([\d.]+)L([\d.]+),([\d.]+)', drawn)
    ends = [tuple(map(float, arrow)) for arrow in arrows]
    for x1, y1, x2, y2 in ends:
        above = {look for look, x, y, wide in boxes if x <= x1 <= x + wide and -1 < y1 - y - 34 < 8}
        below = {look for look, x, y, wide in boxes if x <= x2 <= x + wide and -1 < y - y2 < 28}
        assert len(above) == 1
        assert above == below
    assert len(ends) == 2 * 8  # there and back, each of eight tokens
    widths = [wide for *_, wide in boxes]
    assert max(widths) - min(widths) < 0.2  # so that more of them are longer


# What `init_device_mesh("cpu", (2, 4), …)` and (4, 2) print as `mesh.mesh`, by hand: eight ranks on
# two nodes of four.
TENSOR_LAST = ([[0, 1, 2, 3], [4, 5, 6, 7]], [[0, 4], [1, 5], [2, 6], [3, 7]])
DATA_LAST = ([[0, 2, 4, 6], [1, 3, 5, 7]], [[0, 1], [2, 3], [4, 5], [6, 7]])


def test_ranks_are_numbered_along_the_last_axis_as_torch_numbers_a_mesh():
    data, tensor = 2, 4
    assert (groups([data, tensor], 1), groups([data, tensor], 0)) == TENSOR_LAST
    assert (groups([tensor, data], 0), groups([tensor, data], 1)) == DATA_LAST
    assert groups([2, 2, 2], 1) == [[0, 2], [1, 3], [4, 6], [5, 7]]


def test_a_tree_reaches_every_rank_but_the_first_once():
    pairs = [pair for axis in range(3) for pair in groups([2, 2, 2], axis, is_tree=True)]
    assert sorted(to for _, to in pairs) == [1, 2, 3, 4, 5, 6, 7]
    reached = {0}
    for origin, to in pairs:  # the first axis first, as down the tree
        assert origin in reached
        reached.add(to)


def test_the_last_axis_is_drawn_within_nodes_and_leaves_them_when_the_axes_are_exchanged(
    played, folio
):
    figure = played["meshes-and-experts", "axes-on-links"]
    _, found = states(figure, folio)
    assert [state.runs[0].run.strategy for state in found] == ["tensor_within", "tensor_between"]
    near, far = frame.mesh(found, figure, folio)
    assert "Along tensor ranks: ranks 0, 1 and ranks 2, 3; within a node;" in near.says
    assert "Along replicas: ranks 0, 2 and ranks 1, 3; between nodes;" in near.says
    assert "Along tensor ranks: ranks 0, 2 and ranks 1, 3; between nodes;" in far.says
    of = recorded("axis_links.tensor_between")["settings"]
    seconds = of["num_layers"] * of["activation_bytes"] * 8 / of["node_bits_per_second"]
    assert (
        f"L\xa0S\xa0/\xa0B\xa0=\xa0{1000 * seconds:.0f}\xa0ms; a rank passes 2.00\xa0MiB"
        in far.says
    )


@pytest.mark.parametrize("layout", [WIDE, NARROW])
def test_every_rank_of_a_mesh_is_in_one_frame_and_an_arrow_leaves_it_only_between_nodes(
    played, folio, layout
):
    figure = played["meshes-and-experts", "three-axes"]
    (state,) = frame.mesh(states(figure, folio)[1], figure, folio)
    tree = ET.fromstring(str(state.draw(layout).svg("a", "T", "D", "c")))
    boxes = [
        (set(box.attrib["class"].split()), *(float(box.attrib[name]) for name in ("x", "width")))
        for box in tree.iter("rect")
    ]
    frames = {(x, x + wide) for looks, x, wide in boxes if "pb-soft" in looks}
    assert len(frames) == 2
    ranks = [(x, x + wide) for looks, x, wide in boxes if looks & LOOKS_OF_RANKS]
    assert len(ranks) == 3 * 8  # once for each axis
    for x, end in ranks:
        assert sum(start < x < end < stop for start, stop in frames) == 1
    for arrow in tree.iter("path"):
        places = [float(x) for x in re.findall(r"[ML]([\d.]+),", arrow.attrib["d"])]
        within = any(start < min(places) < max(places) < stop for start, stop in frames)
        assert within is ("pb-series-d" not in arrow.attrib["class"])  # the pipeline's


def test_a_player_opens_with_the_outline_of_every_cell_and_no_row_without_one(played, folio):
    grids = [one for one in played.values() if {"cells", "block", "chunks"} & {*one.play.shows}]
    drawings = [
        ET.fromstring(str(state.draw(layout).svg("a", "T", "D", "c")))
        for figure in grids
        for view in figure.play.shows
        if view in ("cells", "block", "chunks")
        for state in frame.VIEWS[view](states(figure, folio)[1], figure, folio)
        for layout in (WIDE, NARROW)
    ]
    for tree in drawings:
        outlines, held = (set(map(at, tree.iterfind(path))) for path in ("rect", "g/rect"))
        inside = {
            outline: [box for box in held if box[2] == outline[2] and _is_in(box, outline)]
            for outline in outlines
        }
        assert all(inside.values())
        assert {box for boxes in inside.values() for box in boxes} == held
    assert len(drawings) > 10


def at(box):
    return tuple(float(box.attrib[name]) for name in ("x", "width", "y", "height"))


def _is_in(box, outline):
    return outline[0] - 0.2 <= box[0] and box[0] + box[1] <= outline[0] + outline[1] + 0.2


def test_points_on_number_lines_are_where_the_program_reported_them(evidence, folio):
    """Between both ends of the axis, each point lies as its number does between the format's."""
    figure = figures(evidence, "play")["precision", "two-ranks"]
    (state,) = line_view.view(states(figure, folio)[1], figure, folio)
    facts = reported(evidence.book.run("listings.update_on_line"))
    held = [facts[rank][f"held_{seed}_seed"] for seed in ("one", "own") for rank in (0, 1)]
    low, *_, high = facts[0]["numbers"]
    root = ET.fromstring(state.draw(WIDE).svg("line", "A line", "its words", "pb-wide"))
    line = next(one for one in root.iter("line") if one.get("class") == "pb-grid")
    start, end = (float(line.get(x)) for x in ("x1", "x2"))
    points = [float(one.get("cx")) for one in root.iter("circle") if one.get("r") == "6"]
    shown = [low + (x - start) / (end - start) * (high - low) for x in points]
    in_turn = [of_rank[n] for n in range(len(held[0])) for of_rank in held]
    assert shown == pytest.approx(in_turn, abs=1e-5)
