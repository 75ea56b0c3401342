"""Checked, versioned training data for audio-visual models, as a Dagster code location over a pure domain library.

Two lines share one way of working:

``asd``     corpora -> manifest -> loudness_index -> packed_shards
``ref2va``  manifest -> encoded_latents -> parquet_cache_index

Reading order: ``errors`` and ``layout``, then ``publish`` (how anything becomes visible), then one line from its
``contract`` onwards, then ``pictures``, which draw what was published, and last ``defs``, the Dagster shell. Only
``defs``, ``definitions`` and the top-level ``resources`` package know Dagster.
"""
