"""Validation of metrics against people: sets of human judgments, agreement with them, and the half for fitting
scores.
"""
