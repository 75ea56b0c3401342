"""Shared fixtures: the real media folder, and a builder of small corpora."""

import os
from pathlib import Path

import pytest
from corpus_builder import CorpusBuilder
from hypothesis import HealthCheck, settings
from skipping import skip_or_fail

# How fast an example runs depends on the machine and on what else it does: speed is measured by benchmarks, not here.
settings.register_profile("muvap", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("muvap")


@pytest.fixture
def real_media() -> Path:
    """The folder of real media."""
    folder = os.environ.get("MUVAP_REAL_MEDIA")
    if not folder:
        skip_or_fail("MUVAP_REAL_MEDIA is not set: real media are not at hand")
    if not Path(folder, "sample.wav").is_file():
        pytest.fail(f"MUVAP_REAL_MEDIA={folder} holds no sample.wav")
    return Path(folder).resolve()


@pytest.fixture
def corpus(tmp_path: Path) -> CorpusBuilder:
    """An empty corpus below the test's own folder."""
    root = tmp_path / "corpus"
    root.mkdir()
    return CorpusBuilder(root)


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny checkpoint, written once a session."""
    from muvap_assets.ref2va.tiny import write_tiny_checkpoint

    return write_tiny_checkpoint(tmp_path_factory.mktemp("tiny") / "checkpoint")
