"""Metrics, intervals, tests, signatures, results files and tables, all computed from counts."""
