"""Audits of what a model memorised and A/B comparison of what it is worth."""
