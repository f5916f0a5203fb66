"""The experiments, one file each: the syllabus. `runners.declared.experiment.find` finds them."""
