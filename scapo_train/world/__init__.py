"""Small world for a CPU that demonstrates the claim of the paper: ``python -m scapo_train.world``."""
