"""What a build refuses: mistakes that show only when files and traces are compared.

In: an `Evidence`. Out: located errors. Nothing is changed and nothing is printed here.
"""
