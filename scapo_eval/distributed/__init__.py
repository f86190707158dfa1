"""Scores and rewards on engines that run on many machines: Ray Data and Spark (docs/scale.md)."""
