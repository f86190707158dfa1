"""Sampling engines in addition to the trainer's own sampler."""
