"""Bytes to records: opening, limits, JSON, YAML, tables, atomic writing."""
