"""What one rank of a planned strategy holds, sends and computes, by `runners/simulate`."""
