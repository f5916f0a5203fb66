"""The generator turns traces and YAML lessons into Markdown pages. It never imports torch."""

import generator.items.kinds  # noqa: F401 completes the model of a quiz, whoever reads one
