"""Readers and writers of files: lines of JSON, compressed or not, and the formats of other tools."""
