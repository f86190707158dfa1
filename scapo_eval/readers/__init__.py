"""Readers for caption and answer files in all recognized layouts."""
