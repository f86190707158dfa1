"""Segmentation of captions into subsentences by one of several named rules."""
