"""The experiments, one file each: the syllabus. `runners.experiment.find` discovers them."""
