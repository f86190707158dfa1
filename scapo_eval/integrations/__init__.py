"""Adapters that pass SCAPO's rewards and scores to other libraries. Each adapter imports its library."""
