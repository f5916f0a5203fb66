"""How many kills a soak makes, which, and the figures at its end."""

from __future__ import annotations

import pytest

from tests.soak import kills


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--kills", type=int, default=kills.NUM_KILLS, help="how many kills to make")


def pytest_report_header() -> str:
    return f"PROOFBOOK_SOAK={kills.SEED}"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes a victim's kill runs once for each of its share."""
    for victim in kills.SHARES:
        if victim in metafunc.fixturenames:
            chosen = kills.sample(victim, metafunc.config.getoption("--kills"))
            ids = [f"{attempt}-{name}" for attempt, name in chosen]
            metafunc.parametrize(victim, chosen, ids=ids)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what came of the kills."""
    for victim in kills.SHARES:
        found = [one for one in kills.seen if one.victim == victim]
        if found:
            named = sum(one.is_named for one in found)
            slowest = max(one.seconds for one in found)
            terminalreporter.write_line(
                f"{victim}: {len(found)} kills, {named} named, {len(found) - named} harmless, "
                f"the slowest after {slowest:.2f} s"
            )
