"""Planner that computes the memory and time of a training run: ``python -m scapo_train.plan CONFIG --gpus 8xH100``."""
