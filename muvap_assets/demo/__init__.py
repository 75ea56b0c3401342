"""A small corpus whose ground truth can be read back from its pixels and its clicks."""
