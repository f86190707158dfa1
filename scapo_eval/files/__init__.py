"""Readers and writers of files, with functions for opening files, enforcing limits, handling JSON, YAML and tables, and
writing atomically.
"""
