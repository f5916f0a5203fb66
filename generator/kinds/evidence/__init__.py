"""Where the numbers come from: claims, runs and machines."""
