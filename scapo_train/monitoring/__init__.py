"""Monitoring of a training run with logs, alarms and trackers."""
