"""Engines that sample responses beside the trainer's own."""
