"""Benchmarks of the field: each module says which counts a record gives, what they make, and is a BENCHMARK."""
