"""A lean PyTorch loop that aligns a vision-language model with SCAPO or one of its on-policy baselines.

    torchrun --nproc-per-node 8 -m scapo_train configs/qwen2_5_vl_7b.toml

Read ``trainer.py`` first: it is one step from top to bottom, and every other file is one of its phases.
"""
