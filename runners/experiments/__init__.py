"""The experiments: the syllabus. `runners.core.declared.experiment.find` finds them."""
