"""Answers: models and accelerators turned into bytes, FLOP, sequences and verdicts."""
