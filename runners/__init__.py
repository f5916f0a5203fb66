"""Runners execute distributed-training experiments and write what they measured as JSON traces."""
