"""The Dagster shell: what is materialized, when, and how it is shown. What it means is the domain library's.

Belongs here: assets, checks, partitions, automation, metadata. Does not: anything that could be tested without Dagster.
"""
