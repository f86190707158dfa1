"""Benchmarks for hallucination in image captions and in answers about images. Each module defines a benchmark: its
counts per record, its metrics, and its record ``BENCHMARK``.
"""
