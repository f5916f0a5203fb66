"""Calculators: formulas that readers operate, each compared with runs."""
