"""Readers and writers of files: opening, limits, JSON, YAML, tables and atomic writing."""
