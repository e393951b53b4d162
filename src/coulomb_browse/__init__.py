"""A local page for an index: a grid of all images, search, a map, duplicates, label errors, and labeling by keyboard."""
