"""Contains the ground truth of images: the presence oracle and every format."""
