"""Adapters that pass SCAPO's rewards and scores to other libraries. Importing an adapter imports the library that it
supports.
"""
