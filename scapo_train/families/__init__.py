"""How each model family computes its forward pass."""
