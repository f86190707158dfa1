"""Small world in which a CPU can reproduce the claim of the paper; run it with ``python -m scapo_train.world``."""
