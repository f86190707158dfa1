"""Planner that computes the memory and time needed for a training run: ``python -m scapo_train.plan CONFIG --gpus
8xH100``.
"""
