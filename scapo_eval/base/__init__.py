"""Common foundation of all packages: errors, image ids, text processing, types and columns."""
