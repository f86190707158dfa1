"""Metrics against people: sets of human judgements, agreement with them, and the score that was fitted to one half."""
