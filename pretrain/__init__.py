"""Public text, vocabulary and model: the base that every other package may import."""
