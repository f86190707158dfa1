"""Counts to values: metrics, intervals, tests, signatures, results files and tables."""
