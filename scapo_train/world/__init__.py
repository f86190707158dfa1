"""A world small enough for a CPU, in which the paper's claim can be watched: ``python -m scapo_train.world``."""
