"""Everything the demo is made from, in one folder: ``asd``, ``ref2va`` and ``tiny-checkpoint``."""

from __future__ import annotations

from pathlib import Path

from muvap_assets.demo.corpus import write_demo_corpus
from muvap_assets.demo.ref2va import write_demo_datasets
from muvap_assets.storage.locks import private_place, remove_abandoned

CHECKPOINT = "tiny-checkpoint"


def write_sources(folder: Path) -> bool:
    """Write what is missing; true where anything was.

    The checkpoint needs torch, diffusers and transformers, and is written once.
    """
    written = [write_demo_corpus(folder / "asd"), write_demo_datasets(folder / "ref2va")]
    if not (folder / CHECKPOINT).is_dir():
        from muvap_assets.ref2va.tiny import write_tiny_checkpoint

        remove_abandoned(folder, f".{CHECKPOINT}-")
        with private_place(folder, f".{CHECKPOINT}") as scratch:
            write_tiny_checkpoint(scratch).rename(folder / CHECKPOINT)
        written.append(True)
    return any(written)
