"""What is in the images: the presence oracle and every truth format."""
