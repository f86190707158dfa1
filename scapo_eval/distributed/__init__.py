"""Distributed computation of scores and rewards on Ray Data and Spark (docs/scale.md)."""
