"""The DOPA pipeline, which builds a verified presence matrix from images and a vocabulary (paper, section 3)."""
