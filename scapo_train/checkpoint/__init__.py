"""Checkpoints of a training run, with functions for saving, resuming, and keeping the best state."""
