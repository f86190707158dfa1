"""Version of the package and format name of the files that it writes."""

__version__ = "0.2.0"

RESULTS_FORMAT = "scapo-results/1"
"""Value of ``format`` in every results file."""
