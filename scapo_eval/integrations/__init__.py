"""Thin adapters that hand SCAPO's rewards to training libraries; each imports its library itself."""
