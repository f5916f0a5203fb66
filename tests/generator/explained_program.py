"""A section's `program:` for the frozen book, whole and without a mistake."""

PROGRAM = """\
    program:
      path: content/topics/averaging/code/mean.py
      run: tiny_training.averaged
      title: The mean by hand
      walkthrough:
        - code: total = sum(gradients)
          says: The gradients of all ranks are added.
        - code: return total / world_size
          says: The sum is divided by the number of ranks.
      output_says: Both ranks apply the same update.
"""
