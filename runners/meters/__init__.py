"""Meters: what a rank needed (memory), said (collectives) and took (time)."""
