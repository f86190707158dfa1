"""Subsentence rewards and the credit of tokens."""
