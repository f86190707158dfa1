"""Computes the forward pass of each model family."""
