"""Entry point of preference training, for ``python -m scapo_train.preference CONFIG``."""

from ..distributed import leave
from .trainer import main

if __name__ == "__main__":
    leave(main())
