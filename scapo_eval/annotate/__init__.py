"""The DOPA pipeline: from images and a vocabulary to a verified presence/absence matrix (paper, section 3)."""
