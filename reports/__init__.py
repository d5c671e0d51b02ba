"""The privacy disclosure: one machine-readable document and its renderings."""
