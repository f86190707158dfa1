"""Rewards for subsentences and credit assignment to tokens."""
