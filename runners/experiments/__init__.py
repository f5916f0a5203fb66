"""The experiments, one file each: the syllabus. `runners.plans.experiment.find` finds them."""
