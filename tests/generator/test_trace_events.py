"""Timelines for Perfetto, against the fields that the published format requires, and the traces."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from generator.content.book import load
from generator.website import publish

ROOT = Path(__file__).parents[2]
# What "Trace Event Format" requires of each phase that we write, beyond `ph`: complete events and
# metadata events. https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
REQUIRED = {"X": {"name": str, "cat": str, "ts": (int, float), "dur": (int, float),
                  "pid": int, "tid": int, "args": dict},
            "M": {"name": str, "pid": int, "args": dict}}  # fmt: skip
METADATA = {"process_name": ("name", str), "process_sort_index": ("sort_index", int)}


def problems(document):
    """What a document lacks of the format; nothing where Perfetto would read all of it."""
    found = [] if isinstance(document.get("traceEvents"), list) else ["no list of traceEvents"]
    if document.get("displayTimeUnit") not in ("ms", "ns"):
        found.append("displayTimeUnit is neither ms nor ns")
    for number, event in enumerate(document.get("traceEvents", [])):
        required = REQUIRED.get(event.get("ph"))
        if required is None:
            found.append(f"{number}: phase {event.get('ph')!r}")
            continue
        found += [
            f"{number}: {name}"
            for name, kind in required.items()
            if not isinstance(event.get(name), kind)
        ]
        if event["ph"] == "M" and event.get("name") in METADATA:
            name, kind = METADATA[event["name"]]
            if not isinstance(event.get("args", {}).get(name), kind):
                found.append(f"{number}: args.{name}")
        if event["ph"] == "X" and not found and event["dur"] < 0:
            found.append(f"{number}: dur is negative")
    return found


@pytest.fixture(scope="module")
def book():
    return load(ROOT / "content", "reference-cpu-2c", is_stale=lambda _: False)


@pytest.fixture(scope="module")
def exported(book):
    return {
        path: json.loads(content)
        for path, content in publish.timelines(book).items()
        if path.startswith("timelines/reference-cpu-2c/")
    }


@pytest.fixture(scope="module")
def raw():
    """Each run of the reference machine that has a timeline, as its trace holds it."""
    folder = ROOT / "content" / "traces" / "reference-cpu-2c"
    traces = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    return {
        f"timelines/reference-cpu-2c/{trace['experiment']}.{name}.json": run
        for trace in traces
        if "experiment" in trace and isinstance(trace.get("runs"), dict)
        for name, run in trace["runs"].items()
        if run["timing"].get("timeline")
    }


def test_every_run_with_a_timeline_is_exported_in_the_published_format(exported, raw):
    assert exported.keys() == raw.keys()
    assert len(raw) > 15
    assert {path: found for path, one in exported.items() if (found := problems(one))} == {}


def test_events_are_the_spans_of_the_run_in_microseconds_a_process_for_each_rank(exported, raw):
    for path, document in exported.items():
        spans = [
            (s["rank"], s["activity"], s["name"], s["start_seconds"] * 1e6, s["end_seconds"] * 1e6)
            for s in raw[path]["timing"]["timeline"]
        ]
        events = [one for one in document["traceEvents"] if one["ph"] == "X"]
        assert [(e["pid"], e["cat"], e["name"]) for e in events] == [s[:3] for s in spans]
        for event, (*_, start, end) in zip(events, spans, strict=True):
            assert event["ts"] == pytest.approx(start, abs=0.01)
            assert event["ts"] + event["dur"] == pytest.approx(end, abs=0.01)
        named = {e["pid"] for e in document["traceEvents"] if e["name"] == "process_name"}
        assert named == {span[0] for span in spans}
