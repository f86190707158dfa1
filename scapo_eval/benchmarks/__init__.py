"""Benchmarks of the field. Each module defines its counts per record, its metrics, and its record BENCHMARK."""
