"""Validation of metrics against human judgments, including the sets of judgments, the measures of agreement, and the
split of a set into a half for fitting and a half for reporting.
"""
