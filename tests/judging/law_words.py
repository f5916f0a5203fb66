"""What the words of a lab's formulas stand for, by the settings of a case and `n` ranks alone."""

import re

import torch

PADDED = "bytes of the parameters, each padded to a multiple of n"
_PADDED = (
    "4 * n * (-(-num_words * width // n) + -(-width * width // n) + -(-width // n)"
    " + -(-num_outputs // n))"
)
WORDS = {
    "mean": {
        "bytes of all gradients": "4 * (num_outputs + num_hidden_layers * width) * (width + 1)",
        "bytes of the largest bucket": "4 * max(num_outputs, 2 * width) * (width + 1)",
    },
    "ring": {"bytes of the tensor": "4 * num_elements"},
    "tokens": {
        "bytes of the gradients": "4 * (num_words * 16 + 16 * 16 + 16 + num_words * 17)",
        "bytes of the largest logits": "4 * 3 * (length + 6 * (n - 1)) * num_words",
    },
    "zero1": {PADDED: _PADDED},
    "fsdp_unit": {
        "steps": "2",
        "bytes of all parameters": "4 * 6 * (wide * (narrow + 1) + narrow * (wide + 1))",
        "bytes of all shards": "4 * 6 * (wide * (narrow + 1) + narrow * (wide + 1)) / n",
        "bytes of the largest layer": "4 * wide * (narrow + 1)",
        "bytes of the largest activations": "4 * num_samples * wide",
    },
    "tensor_mlp": {"tokens": "num_tokens", "width": "width"},
    "recompute": {
        "bytes of an activation": "4 * num_tokens * width",
        "bytes of the gradients": "4 * 4 * (8 * width * width + 5 * width)",
        "bytes of a random state": str(torch.get_rng_state().nbytes),
    },
    "accum_nosync": {
        "updates": "updates",
        "bytes of the parameters": "4 * (2 * width * width + 4 * width + 1)",
        "samples of a microbatch": "samples",
        "features": "width",
    },
    "dealt_sentences": {
        "updates": "updates",
        "bytes of the parameters": "4 * vocabulary * (2 * width + 1)",
    },
    "stuck_save": {
        "steps": "steps",
        "bytes of the parameters": "4 * ((features + 1 + blocks * (width + 1) + 12) * width + 12)",
    },
    "clipped_stages": {
        "steps": "steps",
        "neighbours": "min(2, n - 1)",
        "bytes of the activations": "4 * microbatches * samples * width",
    },
    "slow_head": {
        "steps": "steps",
        "bytes of the activations": "4 * samples * width",
        "bytes of up and down": "4 * 2 * width * hidden",
    },
}
# What stands behind a number and says what it is for.
_WHAT_FOR = re.compile(r" (bytes for .*|blocks|bytes)(?= \*|$)")


def law(lab, formula, settings, world_size):
    """A formula of `lab.yml` as a number; of several operations, the first."""
    known = {**settings, "n": world_size, "max": max, "min": min}
    text = formula.replace("`", "").replace("−", "-").replace("×", "*").replace("n, +", "n +")
    text = re.sub(r"^[\w ]+: |;.*$", "", text)
    for words in sorted(WORDS[lab], key=len, reverse=True):
        text = text.replace(words, str(eval(WORDS[lab][words], known)))
    text = _WHAT_FOR.sub("", text).replace("1,024", "1024").replace("2,048", "2048")
    return eval(re.sub(r"(?<=[\d)]) ?\(", " * (", text), known)
