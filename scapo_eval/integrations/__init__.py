"""Thin adapters that pass SCAPO's rewards to training libraries; each imports its own library."""
