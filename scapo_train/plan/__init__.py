"""Computes what a run needs before it is started: ``python -m scapo_train.plan CONFIG --gpus 8xH100``."""
