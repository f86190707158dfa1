"""Defines the version of the package and of the files that it writes."""

__version__ = "0.2.0"

RESULTS_FORMAT = "scapo-results/1"
"""What every results file names as its ``format``."""
