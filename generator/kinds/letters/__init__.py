"""The letters of formulas."""
