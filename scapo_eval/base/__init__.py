"""Modules that all other packages use, for errors, image ids, text processing, types and columns."""
