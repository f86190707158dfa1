"""Functions that read and write files: opening, size limits, JSON, YAML, tables and atomic writing."""
