"""Which modules of the ref2va line may import what."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import muvap_assets.ref2va

FOLDER = Path(muvap_assets.ref2va.__file__).parent
LIGHT = ("assembly", "decode_check", "encode", "encoder", "encoder_spec", "prefetch", "records", "row_store", "verify")


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_only_the_encoder_and_the_tiny_checkpoint_import_the_model_libraries(path):
    used = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            used |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            used.add((node.module or "").partition(".")[0])
    assert not used & {"diffusers", "transformers"} or path.stem in ("h3", "tiny")


def test_the_driver_and_everything_it_stands_on_load_without_torch():
    names = ", ".join(f"muvap_assets.ref2va.{name}" for name in LIGHT)
    script = f"import sys, {names}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    loaded = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout.split()
    assert {"torch", "diffusers", "transformers", "av", "cv2", "dagster"}.isdisjoint(loaded)
