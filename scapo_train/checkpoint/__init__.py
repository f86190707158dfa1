"""Saving, resuming and keeping the best state of a run."""
