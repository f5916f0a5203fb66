"""Does it fit: the page computes what Python computes, and says what would turn a no."""

import random

import pytest
import yaml

from proofbook.companions.planner.answers.answer import needs, verdict
from proofbook.companions.planner.answers.architecture import Architecture, model_presets
from proofbook.companions.planner.answers.closed_form import answer
from proofbook.companions.planner.answers.question import (
    PlanError,
    PlannedModel,
    Question,
    TrainingSettings,
    strategy_of,
)
from tests.conftest import ROOT

pytestmark = pytest.mark.browser

NUM_DRAWS, MEMORIES = 400, (16e9, 80e9, 640e9)
ONE_PART = {  # of layers with one part each
    "state_heads": 64, "state_head_size": 64, "state_size": 128, "state_groups": 8, "conv_size": 4,
    "activation": "relu2", "num_experts": 128, "num_active_experts": 6, "latent_size": 1024,
}  # fmt: skip
ASK = """questions => questions.map(({ model, strategy, ...rest }) => {
    const { law } = proofbook;
    const architecture = new law.Architecture(model.architecture);
    const question = new law.Question(
        { ...rest, model: { architecture }, strategy: new law.Strategy(strategy) });
    try { question.check(); } catch ({ message }) { return message; }
    const answer = law.answer(question);
    const verdicts = MEMORIES.map((bytes) => law.verdict(answer, bytes));
    return [law.needs(answer), verdicts, answer.ranks.map(({ at_peak }) => at_peak)];
})""".replace("MEMORIES", str([*MEMORIES]))


@pytest.fixture
def fits(built_site, open_page):
    """The page, once its form has been filled."""
    page = open_page(built_site / "plan.html")
    page.locator("[data-fits] [role=status]:not(:empty)").wait_for()
    return page


def _drawn(draw, written):
    """A question of the form's own settings, about a preset of other sizes."""
    shape = draw.choice([*model_presets().values()]).architecture.model_dump()
    shape |= {"num_layers": draw.randint(1, 90), "vocabulary": draw.randint(1_000, 300_000)}
    if draw.random() < 0.1:
        shape |= ONE_PART | {"pattern": "".join(draw.choices("M*-E", k=shape["num_layers"]))}
    count = 2 ** draw.randint(0, 7)
    name = draw.choice([*written["strategies"]]) if count > 1 else "single"
    training = {"sequence": 2 ** draw.randint(8, 14), "microbatch": draw.randint(1, 4)}
    training |= {"global_batch": training["microbatch"] * count * draw.randint(1, 2)}
    for options in written["choices"].values():
        training |= draw.choice([*options.values()])
    return Question(
        model=PlannedModel(name="drawn", architecture=Architecture(**shape)),
        training=TrainingSettings(**training),
        strategy=strategy_of(name, count),
    )


def _by_python(question):
    try:
        question.check()
    except PlanError as error:
        return str(error)
    made = answer(question)
    peaks = [rank.at_peak.model_dump() for rank in made.ranks]
    return [needs(made), [verdict(made, memory) for memory in MEMORIES], peaks]


def test_the_page_computes_what_python_computes(fits):
    page = yaml.safe_load((ROOT / "content" / "planner" / "plan.yml").read_text(encoding="utf-8"))
    draw, questions = random.Random(85), []
    while len(questions) < NUM_DRAWS:
        try:
            questions.append(_drawn(draw, page["calculator"]))
        except PlanError:  # a strategy that does not divide so many devices
            continue
    by_page = fits.evaluate(ASK, [question.model_dump() for question in questions])
    assert by_page == [*map(_by_python, questions)]
    assert sum(isinstance(one, str) for one in by_page) < NUM_DRAWS / 4


def test_llama_8b_trains_on_24_gib_by_adapters_alone(fits):
    said, turns = fits.locator("[data-fits] [role=status]"), fits.locator("[data-turns]")
    assert said.inner_text().startswith("Does not fit: 1")
    assert "QLoRA (rank 16, nf4) and full checkpointing" in turns.inner_text()
    fits.get_by_label("Trained").select_option("QLoRA (rank 16, nf4)")
    assert "full checkpointing" in turns.inner_text()
    fits.get_by_label("Activations").select_option("full checkpointing")
    assert said.inner_text().startswith("Fits: 1")
    fewest, bound = turns.inner_text().split(": 1. ")
    assert (
        fewest
        == "Fewest devices with which it fits in any case, with this strategy and these settings"
    )
    assert bound.startswith("By computing alone, ")
    fits.reload()
    fits.locator("[data-fits] [role=status]:not(:empty)").wait_for()
    assert said.inner_text().startswith("Fits: 1")


def test_so_many_tokens_take_at_least_as_long_as_their_operations(fits):
    """Six for each weight and token, and those of attention, at the rate of a 4090."""
    fits.get_by_label("Tokens of the whole training").fill("2e11")
    said = (
        fits.locator("[data-turns]")
        .inner_text()
        .partition("200,000,000,000 tokens take at least ")[2]
    )
    weights, attention = 6 * (8_030_261_248 - 128_256 * 4096), 6 * 32 * 4096 * 4096
    days = 2e11 * (weights + attention) / 165.2e12 / 86_400
    assert float(said.split()[0].replace(",", "")) == pytest.approx(days, rel=0.02)


def test_what_the_form_cannot_compute_is_said(fits):
    said, terms = fits.locator("[data-fits] [role=status]"), fits.locator("[data-term]")
    fits.locator("summary", has_text="Sizes of the model").click()
    fits.get_by_label("Attention heads").fill("31")
    assert said.inner_text().startswith("Enter whole numbers")
    assert {*terms.all_inner_texts()} == {"–"}
    fits.get_by_label("Attention heads").fill("32")
    fits.get_by_label("Devices").select_option("16")
    fits.get_by_label("Strategy").select_option("TP with SP")
    assert "16 tensor-parallel ranks do not divide 8 heads of keys and values" in said.inner_text()


def test_home_asks_in_a_sentence_and_answers_as_the_page_of_plans_does(fits, built_site):
    answers = []
    for _ in range(2):
        said = fits.locator("[data-fits] [role=status]:not(:empty)")
        said.wait_for()
        turns = fits.locator("[data-turns]")
        fits.get_by_label("Devices").select_option("16")
        fits.locator("[name=device]").select_option("h100")
        answers.append((said.inner_text(), turns.inner_text().partition(" By computing")[0]))
        memory = fits.locator("[name=device] option[data-mib]")
        mib = memory.evaluate_all("all => all.map(one => Number(one.dataset.mib))")
        assert mib == sorted(mib)
        fits.goto((built_site / "index.html").as_uri())
    assert answers[0] == answers[1]
    assert answers[0][0].startswith("Fits: ")
    few = int(answers[0][1].split()[-1].strip("."))
    assert 1 < few <= 16
    said = fits.locator("[data-fits] [role=status]:not(:empty)")
    for count, begins in ((few, "Fits"), (few // 2, ("May", "Does not"))):
        fits.locator("[name=device]").select_option("h100")
        fits.get_by_label("Devices").select_option(str(count))
        assert said.inner_text().startswith(begins)
    fits.get_by_role("link", name="All settings").click()
    said.wait_for()
    assert fits.get_by_label("Devices").input_value() == str(few // 2)
