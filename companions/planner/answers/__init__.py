"""What is asked of the planner, what it answers, and the committed files of answers. No torch."""
