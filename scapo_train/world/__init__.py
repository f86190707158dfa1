"""Small-world experiment, which reproduces the claim of the paper on a CPU; run it with ``python -m
scapo_train.world``.
"""
