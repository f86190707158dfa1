"""Version of the package, and name of the file format that the package writes."""

__version__ = "0.2.0"

RESULTS_FORMAT = "scapo-results/1"
"""Value of ``format`` in every results file."""
