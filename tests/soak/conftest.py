"""How many kills a soak makes, and which."""

import random
import time

import pytest

from proofbook.runners.core.declared.experiment import find, names

NUM_KILLS = 200
# Of each twenty kills: ranks and what they started, forkservers, whole commands.
SHARES = {"rank": 14, "forkserver": 2, "command": 4}
OF_TODAY = int(time.time() // 86400)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--kills", type=int, default=NUM_KILLS, help="how many kills to make")
    parser.addoption("--seed", type=int, help="what is drawn; by default, another each day")


def pytest_report_header(config: pytest.Config) -> str:
    return f"--seed {_seed(config)}"


def _seed(config: pytest.Config) -> int:
    seed = config.getoption("--seed")
    return OF_TODAY if seed is None else seed


@pytest.fixture(scope="session")
def seed(pytestconfig) -> int:
    return _seed(pytestconfig)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes a kill runs once for each; each experiment has as many as any other."""
    if "kill" in metafunc.fixturenames:
        chance = random.Random(_seed(metafunc.config))
        order = [name for name in names() if not find(name).is_full]
        chance.shuffle(order)
        count = metafunc.config.getoption("--kills")
        victims = chance.choices(list(SHARES), list(SHARES.values()), k=count)
        chosen = [(n, one, order[n % len(order)]) for n, one in enumerate(victims)]
        metafunc.parametrize("kill", chosen, ids=["-".join(map(str, one)) for one in chosen])
