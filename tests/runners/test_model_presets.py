"""Presets: public configurations have the sizes that their authors published."""

from runners.planner.answers.architecture import model_presets

# Counted by others from the tensors of the published checkpoints, to the last parameter.
EXACT = {
    "gpt2-124m": 124_439_808,
    "gpt2-1.5b": 1_557_611_200,
    "llama-1b": 1_235_814_400,
    "llama-8b": 8_030_261_248,
    "llama-13b": 13_015_864_320,
    "llama-70b": 70_553_706_496,
    "mixtral-8x7b": 46_702_792_704,
}


def test_the_closed_form_gives_the_published_number_of_parameters():
    found = {name: one.architecture.num_parameters for name, one in model_presets().items()}
    assert found == EXACT
