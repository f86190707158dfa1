"""Logs, alarms and trackers of a training run."""
