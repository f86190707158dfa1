"""Scores and rewards on distributed engines: Ray Data and Spark (docs/scale.md)."""
