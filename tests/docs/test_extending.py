"""The examples of ``docs/extending.md``, taken from the page and run in a workspace where they were written down."""

import subprocess
import sys

import pytest
from pages import ROOT, blocks, code, tables
from walks import Walk, to_run

from muvap_assets.ref2va.encoder import Stage

PAGE = "docs/extending.md"
CORPUS, ENCODER = "A corpus of your own", "An encoder of your own"


def due(section):
    wanted = set(to_run(PAGE))
    return [block.place for block in blocks(PAGE) if block.place in wanted and block.section == section]


@pytest.fixture
def with_corpus(asd_demo, fresh, tmp_path):
    """A workspace in which the section about corpora was followed."""
    walk = Walk(PAGE, fresh(asd_demo, tmp_path / "muvap_assets"))
    assert walk.follow([CORPUS]) == due(CORPUS)
    return walk.workspace


def test_the_corpus_of_the_page_is_read_packed_and_rejected_where_it_is_wrong(with_corpus):
    tracks = with_corpus / "mine/interviews/tracks.json"
    tracks.write_text(tracks.read_text().replace('"25"', '"fast"', 1).replace('"frames": 100', '"frames": "many"'))
    program = (
        "from pathlib import Path\n"
        "from muvap_assets.asd.line import validate_corpus\n"
        "from muvap_assets.datasets import load_datasets\n"
        "report = validate_corpus(load_datasets(Path('mine/interviews.yaml')).corpus('interviews'))\n"
        "print([(str(each.code), each.row) for each in report.findings], report.row_count)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=with_corpus,
        env={"PYTHONPATH": str(with_corpus)},
        capture_output=True,
        text=True,
        check=True,
    )
    # Frames are read before the rate: both rows say first what is first wrong with them.
    assert done.stdout == "[('key_missing', 1), ('key_missing', 2)] 2\n"


def test_the_examples_meet_the_linter(with_corpus, tmp_path):
    example = with_corpus / "muvap_assets/asd/corpora/interview.py"
    linter = [sys.executable, "-m", "ruff", "check", "--config", str(ROOT / "pyproject.toml"), str(example)]
    done = subprocess.run(linter, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_the_example_meets_the_type_checker(with_corpus):
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "-p", "muvap_assets.asd.corpora"],
        cwd=with_corpus,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_the_encoder_of_the_page_makes_only_what_it_changes(demo, fresh, tmp_path):
    walk = Walk(PAGE, fresh(demo, tmp_path / "muvap_assets"))
    assert walk.follow([ENCODER]) == due(ENCODER)


def test_the_stages_of_the_page_are_those_of_the_code_with_their_components():
    (table,) = tables(PAGE, ENCODER)
    assert [(code(row[0]), code(row[1])) for row in table[1:]] == [
        (str(stage), str(stage.component)) for stage in Stage
    ]


def test_every_block_is_part_of_one_of_the_two_examples():
    assert sorted(to_run(PAGE)) == sorted([*due(CORPUS), *due(ENCODER)])
