"""Sampling engines that can be used instead of the policy itself."""
