"""Run ``python -m scapo_eval``, which is the command ``scapo-eval``."""

from .cli.start import run

if __name__ == "__main__":
    run()
