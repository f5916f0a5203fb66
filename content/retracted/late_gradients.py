"""One rate, gradients that arrive later and later: torchrun --nproc-per-node 1 late_gradients.py"""

for delay in (0, 1, 4):
    places = [1.0] * (delay + 1)
    for _ in range(60):
        places.append(places[-1] - 0.9 * places[-1 - delay])  # the slope of half a square
    print(f"gradients {delay} steps late: after 60 steps {abs(places[-1]):.1e} from the minimum")
