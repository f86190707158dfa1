"""Checkpoints of a training run: saving, resuming, and keeping the best state."""
