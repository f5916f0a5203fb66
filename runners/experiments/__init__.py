"""The experiments, one folder each: the syllabus. `runners.plans.experiment.find` finds them."""
