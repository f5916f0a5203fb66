"""Idle shares of two schedules, by their order: torchrun --nproc-per-node 1 who_idles_less.py"""

STAGES, PARTS = 4, 8
SECONDS = {"F": 1, "B": 2}
for name in ("GPipe", "1F1B"):
    orders, most = [], PARTS if name == "GPipe" else STAGES
    for stage in range(STAGES):
        ahead = PARTS if name == "GPipe" else STAGES - stage
        steps = [("F", part) for part in range(ahead)]
        for part in range(PARTS):
            steps += [("B", part)] + ([("F", ahead + part)] if ahead + part < PARTS else [])
        orders.append(steps)
    done, free = {}, [0] * STAGES
    while any(orders):
        for stage in range(STAGES):
            kind, part = orders[stage][0] if orders[stage] else ("F", None)
            before = stage - 1 if kind == "F" else stage + 1
            if part is not None and (not 0 <= before < STAGES or (kind, part, before) in done):
                free[stage] = max(free[stage], done.get((kind, part, before), 0)) + SECONDS[kind]
                done[(*orders[stage].pop(0), stage)] = free[stage]
    print(f"{name}: {1 - PARTS * 3 / max(free):.1%} idle, at most {most} microbatches held")
