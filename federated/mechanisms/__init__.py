"""Correlated-noise mechanisms: one object holds strategy, sensitivity, noise and DP event."""
