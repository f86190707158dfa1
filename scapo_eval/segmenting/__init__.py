"""Segmentation of captions into subsentences by named rules."""
