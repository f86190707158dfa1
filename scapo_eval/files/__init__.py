"""Readers and writers of files, with functions for opening, limits, JSON, YAML, tables and atomic writing."""
