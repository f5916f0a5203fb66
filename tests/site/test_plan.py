"""The Plan pages: each choice against the command's own, and by hand in a browser."""

import base64
import json
import re
import zlib

import pytest
import yaml

from proofbook.runners.planner.answers.answer import answers_of, layouts, needs
from proofbook.runners.planner.answers.law_of_time import Cluster
from proofbook.runners.planner.answers.plan_grid import named_rows, read_grid
from tests.conftest import ROOT

# Of a device: FLOP/s in bf16, bytes per second within a node, and from a node to others.
RATES = {
    "a10": (125e12, 32e9, 25e9),
    "a100": (312e12, 300e9, 200e9),
    "h100": (989.5e12, 450e9, 400e9),
    "h200": (989.5e12, 450e9, 400e9),
}
CUT = """all => all
    .filter(one => one.checkVisibility() && one.scrollWidth > one.clientWidth)
    .map(one => one.textContent.slice(0, 40))"""
LEADS_TO = re.compile(r'href="[^"]*#(\w+)"')


def _scheduled(work, microbatches):
    """The time of a 1F1B step on stages of so much work a microbatch, a third of it forward."""
    orders = []
    for stage in range(len(work)):
        ahead = min(len(work) - 1 - stage, microbatches)
        orders.append(["F"] * ahead + ["F", "B"] * (microbatches - ahead) + ["B"] * ahead)
    ended, clock, done = {}, [0.0] * len(work), [0] * len(work)
    while any(done[stage] < len(order) for stage, order in enumerate(orders)):
        for stage, order in enumerate(orders):
            while done[stage] < len(order):
                kind = order[done[stage]]
                at = order[: done[stage]].count(kind)
                before = ("F", stage - 1) if kind == "F" else ("B", stage + 1)
                is_first = before[1] in (-1, len(work))
                if not is_first and (*before, at) not in ended:
                    break
                clock[stage] = max(clock[stage], 0 if is_first else ended[*before, at])
                clock[stage] += work[stage] * (1 if kind == "F" else 2) / 3
                ended[kind, stage, at] = clock[stage]
                done[stage] += 1
    return max(clock)


def test_a_pipeline_takes_no_longer_than_its_schedule_and_hardly_less(built_site):
    """Twelve layers in eight stages, so the stages differ; the rate is that of an H100 in bf16."""
    grid = json.loads((built_site / "planner" / "plans" / "gpt2-124m.json").read_text())
    [row] = [
        one for one in grid["rows"]
        if one["strategy"] == "1f1b" and one["state"] == grid["rows"][0]["state"]
    ]  # fmt: skip
    first, inner, last = (rank["flops"] / row["num_microbatches"] for rank in row["ranks"])
    stages = [first, inner, inner, inner, inner / 2, inner / 2, inner / 2, last]
    assert row["state"]["devices"] == len(stages)
    scheduled = 1000 * _scheduled(stages, row["num_microbatches"]) / 989.5e12
    html = (built_site / "plan" / "gpt2_124m.html").read_text()
    row = re.search(r">1F1B</span></th>(.*?)</tr>", html, re.DOTALL)[1]
    _, shown = re.findall(r">([\d,.]+)</a>", row)  # needs, and at least
    assert re.search(r"At\sleast, ms</th>", html)
    assert 0.95 * scheduled < float(shown) < 1.003 * scheduled


def _states(site, name):
    """What each choice of a page leads to: its options in words, and its HTML."""
    html = (site / "plan" / f"{name}.html").read_text()
    groups = [
        re.findall(r'<span class="pb-label">(.*?)</span>', one)
        for one in re.findall(r"<fieldset>(.*?)</fieldset>", html)
    ]
    script = (site / "assets" / "figures" / f"plan-{name}-plan.js").read_text()
    letters = re.search(r'"plan","(.*)"', script)[1]
    states = json.loads(zlib.decompress(base64.b64decode(letters), -15))
    return [(["".join(g[n]) for g, n in zip(groups, at, strict=True)], text) for at, text in states]


def test_every_choice_shows_what_the_command_tries_first_of_the_same_answers(built_site):
    """The first layout of each strategy that fits, in the order of the rule; full ones say so."""
    grid = read_grid(ROOT / "content" / "planner" / "plans" / "llama-8b.json")
    cited = yaml.safe_load((ROOT / "content" / "references.yml").read_text())["references"]
    memory = {one["id"]: one.get("value") for one in cited}
    optimizers = yaml.safe_load((ROOT / "content" / "planner" / "plan.yml").read_text())["words"]
    answers, rows = answers_of(grid), named_rows(grid)
    seen = set()
    for words, html in _states(built_site, "llama_8b"):
        mesh, (device, size) = words[0].split(" × "), words[1].lower().split()[:2]
        known = memory[
            "a100-80-memory" if (device, size) == ("a100", "80.0") else f"{device}-memory"
        ]
        said = [*words[2:], f"{grid.base_sequence:,}", "Adam"]
        sequence = next(int(one.replace(",", "")) for one in said if one[0].isdigit())
        wanted = next(one for one in said if not one[0].isdigit())
        optimizer = next(key for key, one in optimizers["optimizer"].items() if one == wanted)
        devices = int(mesh[0]) * int(mesh[1])
        cluster = Cluster(int(mesh[0]), int(mesh[1]), *RATES[device])
        of_state = {
            key: one
            for key, one in answers.items()
            if (rows[key].state.devices, rows[key].state.sequence, rows[key].state.optimizer)
            == (devices, sequence, optimizer)
            and answers[key].question.strategy.num_devices == devices
        }
        names = {id(one): key for key, one in of_state.items()}
        best = {}
        for one in layouts(list(of_state.values()), cluster, known):
            best.setdefault(one.answer.question.strategy.name, names[id(one.answer)])
        table = html.partition("<tbody>")[2].partition("</tbody>")[0]
        listed = {LEADS_TO.search(row)[1]: row for row in table.split("</tr>")[:-1]}
        assert list(listed) == list(best.values())[:8]
        for key, row in listed.items():
            assert ("nearly fills the device" in row) == (needs(of_state[key]) > 0.95 * known)
        advice, *_ = html.partition("</dl>")
        measured = [LEADS_TO.search(one)[1] for one in advice.split("<dt>")[1:]]
        assert measured == list(listed)[:3] or (not listed and measured[0] in answers)
        seen.add((devices, known, sequence, optimizer))
    assert len(seen) == len(_states(built_site, "llama_8b"))


@pytest.mark.browser
def test_keys_choose_devices_and_the_page_says_what_to_try_first_then(built_site, open_page):
    page = open_page(built_site / "plan" / "llama_8b.html", viewport={"width": 390, "height": 900})
    root, said = page.locator("#figure-plan"), page.locator("#figure-plan [role=status]")
    first = root.locator(".pb-advice dd").first.text_content()
    page.wait_for_function("() => document.querySelector(`script[src*='-plan.js']`)")
    root.locator("fieldset").nth(1).locator("input:checked").focus()
    page.keyboard.press("ArrowLeft")
    said.filter(has_text="Device and its memory: A100").wait_for(state="attached")
    second = root.locator(".pb-advice dd").first.text_content()
    assert second != first
    assert f"Try first: {second}" in said.text_content()
    assert not page.evaluate("document.documentElement.scrollWidth > innerWidth")
    page.goto((built_site / "index.html").as_uri())
    page.go_back()
    root.locator(".pb-advice dd").first.filter(has_text=second).wait_for()
    page.goto((built_site / "plan" / "llama_8b.html").as_uri() + "#fsdp_on_8")
    page.locator("#fsdp_on_8").filter(visible=True).wait_for()


@pytest.mark.browser
def test_on_a_phone_no_table_of_plans_is_cut_and_a_key_copies_code_as_written(
    built_site, open_page
):
    page = open_page(
        built_site / "plan.html", viewport={"width": 390, "height": 900},
        permissions=["clipboard-read", "clipboard-write"],
    )  # fmt: skip
    for name in ("plan", "plan/llama_8b", "plan/mixtral_8x7b"):
        page.goto((built_site / f"{name}.html").as_uri())
        assert page.locator(".pb-scroll").evaluate_all(CUT) == [], name
        _copies(page, page.locator(".md-code__button:visible").first)
    page.goto((built_site / "topics/ddp/learn.html").as_uri())
    page.locator("pre > .pb-lines").first.scroll_into_view_if_needed()
    _copies(page, page.locator("pre:has(> .pb-lines) .md-code__button").first)  # no line numbers
    assert page.locator(".pb-printed .md-code__button").count() == 0  # nor what a run printed


def _copies(page, button):
    button.press("Enter")
    page.get_by_text("Copied to clipboard").wait_for()
    code = button.locator("xpath=ancestor::pre/code").text_content()
    assert page.evaluate("navigator.clipboard.readText()") == code.strip()
