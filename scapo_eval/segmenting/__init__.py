"""Captions to subsentences, by named rules."""
