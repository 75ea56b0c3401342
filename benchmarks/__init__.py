"""Measurements of the platform: `make bench` prints them, `make bench-check` fails on a missed target."""
