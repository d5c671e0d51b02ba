"""Private discovery of out-of-vocabulary words (Sun & Sun 2024)."""
