"""Rewards for subsentences, and assignment of the rewards to tokens."""
