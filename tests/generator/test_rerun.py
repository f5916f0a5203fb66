"""What a rerun changed is told line by line; what an author changed is not."""

import pytest

from generator import __main__ as commands
from generator.__main__ import main
from generator.content.book import load
from generator.evidence.evaluation import Evidence
from generator.website import rerun
from generator.website.publish import publish


@pytest.fixture
def out(tmp_path):
    return tmp_path / "pages"


@pytest.fixture
def copy(copy):
    """The frozen book on a machine of one's own, where reruns happen."""
    copy.add_machine("desk", "tiny_memory", "tiny_training")
    return copy


def built(copy, out):
    """What a build tells of the rerun before it."""
    return publish(copy.load(), copy.content, out).rerun


def slower_alone(copy, seconds):
    """The trace of another run, in which one process took as long as this for a step."""
    samples = [seconds + position * 1e-5 for position in range(5)]
    timing = copy.load().run("tiny_training.single").model_dump(mode="json")["timing"]
    timing["step"] |= {
        "samples": samples,
        "median_seconds": samples[2],
        "first_quartile_seconds": samples[1],
        "third_quartile_seconds": samples[3],
    }
    copy.change_run("tiny_training.single", "desk", timing=timing)


def test_the_first_build_and_one_of_the_same_traces_tell_nothing(copy, out):
    assert built(copy, out) == []
    assert built(copy, out) == []
    assert (out / rerun.NOTE).is_file()


def test_a_rerun_tells_the_verdicts_sentences_and_keys_that_it_changed(copy, out):
    built(copy, out)
    before = Evidence(copy.load())
    slower_alone(copy, 0.0044)
    lines = built(copy, out)
    after = Evidence(copy.load())
    assert "verdict averaging-is-slower: holds → does not hold" in lines
    sentence = before.plain(before.sentence("averaging-is-slower"))
    again = after.plain(after.sentence("averaging-is-slower"))
    assert f"sentence averaging-is-slower: {sentence} → {again}" in lines
    assert "key is-it-faster: “The averaged one” → “The single one”" in lines
    assert all(line.isprintable() or "\u00a0" in line for line in lines)
    assert built(copy, out) == []


def test_a_rerun_that_moves_numbers_alone_tells_the_keys_that_are_numbers(copy, out):
    built(copy, out)
    ranks = copy.load().run("tiny_memory.whole").model_dump(mode="json")["ranks"]
    ranks[0]["memory"]["peak_bytes"] = 166_000
    copy.change_run("tiny_memory.whole", "desk", ranks=ranks)
    assert built(copy, out) == ["key what-peak: 160\u00a0KiB → 162\u00a0KiB"]


def test_what_an_author_rewrote_since_is_not_told_as_the_reruns(copy, out):
    built(copy, out)
    copy.edit("topics/averaging/quiz.yml", "text: The averaged one", "text: The one that averages")
    assert built(copy, out) == []
    slower_alone(copy, 0.0044)
    lines = built(copy, out)
    assert "verdict averaging-is-slower: holds → does not hold" in lines
    assert not any(line.startswith("key is-it-faster") for line in lines)


def test_another_machine_is_no_rerun(copy, out):
    built(copy, out)
    copy.add_machine("shed", "tiny_memory", "tiny_training")
    assert built(copy, out) == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"machine": 1}', "\x00"])
def test_a_note_that_cannot_be_read_is_written_anew(copy, out, text):
    built(copy, out)
    note = (out / rerun.NOTE).read_text()
    (out / rerun.NOTE).write_text(text)
    assert built(copy, out) == []
    assert (out / rerun.NOTE).read_text() == note


def test_every_kind_of_key_is_said_in_words(copy):
    evidence = Evidence(copy.load())
    said = {
        name: rerun.key_in_words(item, evidence)
        for topic in copy.load().topics
        for name, item in topic.items.items()
    }
    assert said["is-it-equal"] == "“Yes”"
    assert said["who-needs-most"].startswith("the second part")
    assert said["what-belongs"].startswith("its rows: 40")
    assert said["where-is-the-fault"] == "return total * 1"
    assert said["which-hold"].count("“") == 2


def test_the_command_prints_what_a_rerun_changed(copy, out, capsys, monkeypatch):
    monkeypatch.setattr(commands, "load", lambda *asked: load(*asked, is_stale=lambda _: False))
    call = ["build", "--content", str(copy.content), "--out", str(out)]
    assert main(call) == 0
    assert "verdict " not in capsys.readouterr().out
    slower_alone(copy, 0.0044)
    main(call)
    assert "verdict averaging-is-slower: holds → does not hold" in capsys.readouterr().out
