"""From a fresh clone, following nothing but the README: the demo, a corpus of one's own, AVA as it is shipped, ref2va rows.

Each test follows the sections it names, as the clone's own README has them; the environment is the one that runs the tests.
"""

import json
import subprocess

import pytest
from pages import ROOT, blocks
from skipping import skip_or_fail
from walks import Walk, to_run, with_environment

from muvap_assets.asd.packs.reader import PackReader
from muvap_assets.layout import Layout
from muvap_assets.ref2va.cache import open_index

PAGE = "README.md"
DEMO = ("Two commands", "Three ways to use it")
OWN, SHIPPED, REF2VA = "Your first dataset in ten minutes", "A corpus as it is shipped", "Reference-conditioned video"


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A clone of the committed state, after `make demo` and the commands about it."""
    folder = tmp_path_factory.mktemp("stranger") / "muvap_assets"
    cloned = subprocess.run(["git", "clone", "-q", str(ROOT), str(folder)], capture_output=True, text=True, check=False)
    if cloned.returncode:
        skip_or_fail(f"no clone of {ROOT}: {cloned.stderr.strip()}")
    return with_environment(folder)


@pytest.fixture(scope="module")
def walk(clone):
    """The README followed through its first commands; the tests below go on from there, as one reader in one terminal."""
    walk = Walk(PAGE, clone, source=clone)
    walk.follow(DEMO)
    return walk


def current(clone, line, artifact, partition):
    return (clone / "data" / line / artifact / partition / "current").resolve()


@pytest.mark.slow
def test_the_demo_is_materialized_and_read_in_every_way_the_readme_shows(walk, clone):
    pack = PackReader(current(clone, "asd", "packed_shards", "demo_train"))
    again = PackReader(clone / "out/asd/packed_shards/train/current")
    assert [sample.entry.sample_id for sample in pack] == [sample.entry.sample_id for sample in again]
    assert (
        len(open_index(current(clone, "ref2va", "parquet_cache_index", "demo_clips"), require_existing=True).rows) == 4
    )


@pytest.mark.slow
def test_a_corpus_of_ones_own_goes_from_a_manifest_to_a_batch_and_onto_the_graph(walk, clone):
    walk.follow([OWN])
    pack = PackReader(current(clone, "asd", "packed_shards", "talks_train"))
    assert [(sample.entry.sample_id, sample.source_fps.text, len(sample.faces)) for sample in pack] == [
        ("anna", "29.97", 240),
        ("ben", "25", 300),
    ]


@pytest.mark.slow
def test_ava_is_read_as_it_is_shipped(walk, clone, corpora):
    corpora(clone / "mine")
    walk.follow([SHIPPED])
    pack = PackReader(current(clone, "asd", "packed_shards", "ava_train"))
    assert [sample.source_fps.text for sample in pack] == ["25", "29.97", "30"]


@pytest.mark.slow
def test_rows_of_ref2va_are_encoded_and_published(walk, clone):
    walk.follow([REF2VA])
    (row,) = open_index(clone / "out/clips", require_existing=True).rows
    assert (row.id, row.bucket, [reference.media_type for reference in row.references]) == (
        "walk",
        "bucket=128x64-22f",
        ["image", "audio"],
    )
    facts = json.loads((clone / "out/clips/dataset.json").read_text())
    assert facts["rows"] == 1


@pytest.mark.slow
def test_a_second_demo_makes_nothing_and_the_ci_script_makes_all_of_it_from_nothing(walk, clone):
    def run(*command):
        return subprocess.run(
            command, cwd=clone, env=walk.environment(), capture_output=True, text=True, check=True
        ).stdout

    assert "dagster asset materialize" not in run("make", "-o", "install", "demo")
    root, checkpoint = clone / "from-nothing", clone / "data/demo/tiny-checkpoint"
    run(
        "env",
        f"MUVAP_H3_CHECKPOINT={checkpoint}",
        ".venv/bin/python",
        "deploy/ci/materialize.py",
        "--all",
        "--data-root",
        root,
    )
    for line, artifact, partition in (
        ("asd", "packed_shards", "demo_val"),
        ("ref2va", "parquet_cache_index", "demo_whole"),
    ):
        again = Layout(root).artifact(line, artifact, partition).current.resolve()
        assert again.name == current(clone, line, artifact, partition).name


@pytest.mark.slow
def test_nothing_of_the_readme_was_left_out(walk, clone):
    assert sorted(walk.ran) == sorted(to_run(PAGE, clone))


def test_these_tests_follow_every_section_that_has_something_to_run():
    due = set(to_run(PAGE))
    assert {block.section for block in blocks(PAGE) if block.place in due} == {*DEMO, OWN, SHIPPED, REF2VA}
