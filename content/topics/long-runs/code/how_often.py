"""How often to save: trainings with drawn deaths, at intervals around the square-root rule.

torchrun --nproc-per-node 1 how_often.py
"""

import math
import random

WORK, BETWEEN, RESTART = 10_000, 3.0, 0.25  # hours of work, between deaths, until work goes on
STALL, WRITING = 0.01, 0.1  # hours that training waits for a save, and until the save is whole
AROUND = {"quarter": 0.25, "half": 0.5, "rule": 1, "double": 2, "four": 4}


def goodput(interval, stall):
    """The share of the time in which work was done that no death undid."""
    draw = random.Random(0)
    now = done = saved = 0.0
    death, writing = draw.expovariate(1 / BETWEEN), []  # saves, and when they will be whole
    while done < WORK:
        step = min(interval, WORK - done)
        if now + step + stall < death:
            now, done = now + step + stall, done + step
            writing.append((now - stall + WRITING, done))
        else:  # it dies before the next save has begun, and saves that are not whole are lost
            done = saved = max([saved, *[work for whole_at, work in writing if whole_at <= death]])
            now, writing = death + RESTART, []
            death = now + draw.expovariate(1 / BETWEEN)
    return WORK / now


facts = {}
for name, stall in (("waiting", WRITING), ("background", STALL)):
    interval = math.sqrt(2 * stall * BETWEEN)
    lost = stall / interval + (interval / 2 + WRITING + RESTART) / BETWEEN
    facts |= {f"{name}_interval": interval, f"{name}_predicted": 1 / (1 + lost)}
    found = {word: goodput(times * interval, stall) for word, times in AROUND.items()}
    facts |= {f"{name}_rule": found["rule"], f"{name}_all": [*found.values()]}
    print(f"{name}: every {interval:.2f} h, goodput {found['rule']:.3f}")
    print("  at", ", ".join(f"{word} {value:.3f}" for word, value in found.items()))
report = [facts]
