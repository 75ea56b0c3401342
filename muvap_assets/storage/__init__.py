"""What anything that keeps files stands on: digests of files, files replaced in one step, locks, paths as users write them."""
