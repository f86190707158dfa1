"""Implementations of the forward pass for the supported model families."""
