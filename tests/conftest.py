"""Shared fixtures, and how the tests are divided between several pytest workers."""

import fcntl
import os
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

# Workers share the cores: each keeps to one thread, and so do the processes it starts. Read when NumPy or torch is first imported.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import pytest
from corpus_builder import CorpusBuilder
from hypothesis import HealthCheck, settings
from skipping import skip_or_fail

# How fast an example runs depends on the machine and on what else it does: speed is measured by benchmarks, not here.
settings.register_profile("muvap", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("muvap")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Keep the tests of a file with a module fixture in one worker, so that it is made once; others go where there is room."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFixture(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return file if _shares_a_fixture(config.rootpath / file) else nodeid

    return ByFixture(config, log)


@cache
def _shares_a_fixture(file: Path) -> bool:
    """Whether it or the ``conftest.py`` next to it has a fixture of scope ``module``."""
    places = (file, file.with_name("conftest.py"))
    return any('scope="module"' in place.read_text(encoding="utf-8") for place in places if place.is_file())


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
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], object]], Path]:
    """``made_once(name, make)``: a folder that all workers read, written by the first that asks for it."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def folder(name: str, make: Callable[[Path], object]) -> Path:
        place, finished = shared / name, shared / f"{name}.finished"
        with (shared / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not finished.exists():
                shutil.rmtree(place, ignore_errors=True)
                make(place)
                finished.touch()
        return place

    return folder


@pytest.fixture(scope="session")
def tiny_checkpoint(made_once) -> Path:
    """The tiny checkpoint."""
    from muvap_assets.ref2va.tiny import write_tiny_checkpoint

    return made_once("tiny-checkpoint", write_tiny_checkpoint)
