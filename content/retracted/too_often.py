"""Time lost to saves and to deaths, replayed: torchrun --nproc-per-node 1 too_often.py"""

from random import Random

SAVE, MEAN_LIFE, WORK = 2.0, 400.0, 100_000.0  # seconds
for interval in (5, 10, 20, 40, 80, 160, 320):
    chance, clock, done = Random(0), 0.0, 0.0
    death = chance.expovariate(1 / MEAN_LIFE)
    while done < WORK:
        if clock + interval + SAVE <= death:
            clock, done = clock + interval + SAVE, done + interval
        else:
            clock, death = death, death + chance.expovariate(1 / MEAN_LIFE)
    young = " (Young)" if interval**2 == 2 * SAVE * MEAN_LIFE else ""
    print(f"a save every {interval:>3} s{young}: {clock / WORK - 1:.1%} longer")
