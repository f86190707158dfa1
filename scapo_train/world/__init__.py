"""Small world in which the claim of the paper is reproduced on a CPU; run it with ``python -m scapo_train.world``."""
