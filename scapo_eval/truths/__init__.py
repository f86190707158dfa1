"""Ground truth for images: the presence oracle, and readers and writers for all formats."""
