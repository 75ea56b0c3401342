"""Every fenced command and program of the pages is run, as it stands, or says why it is not. The README is followed from a fresh
clone by ``test_strangers_path.py``; the other pages here, each in a workspace of its own, from its first block to its last."""

import json
import re

import pytest
import yaml
from pages import PAGES, ROOT, blocks, code, read_page, tables
from walks import Walk, assert_shown, to_run

from muvap_assets.asd.contract import MANIFEST_COLUMNS, OPTIONAL_COLUMNS
from muvap_assets.asd.corpora.ava import AvaCorpus
from muvap_assets.asd.corpora.entry import CorpusEntry
from muvap_assets.asd.corpora.msdwild import MsdwildCorpus
from muvap_assets.asd.corpora.tsv import TsvCorpus
from muvap_assets.datasets import Datasets, Ref2VAEntry, parse_datasets

FAST = ("docs/formats.md", "docs/resuming.md", "docs/troubleshooting.md")
"""Pages that need no more than the asd line of the demo, and no Dagster."""

SLOW = ("docs/asd.md", "docs/ref2va.md", "docs/versions.md")
EXTRACTED = ("docs/extending.md",)
"""Its examples become tests of their own, in test_extending.py."""

FOLLOWED = (*FAST, *SLOW, *EXTRACTED, "README.md")


# --- running them -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", FAST)
def test_a_page_does_what_it_says(page, asd_demo, fresh, tmp_path):
    walk = Walk(page, fresh(asd_demo, tmp_path / "muvap_assets"))
    assert walk.follow() == to_run(page)


@pytest.mark.slow
@pytest.mark.parametrize("page", SLOW)
def test_a_page_that_takes_longer_does_what_it_says(page, demo, fresh, corpora, tmp_path):
    workspace = fresh(demo, tmp_path / "muvap_assets")
    corpora(workspace / "mine")
    assert Walk(page, workspace).follow() == to_run(page)


def test_every_page_is_followed_or_has_nothing_to_run():
    assert set(FOLLOWED) <= set(PAGES)
    assert {page: to_run(page) for page in PAGES if page not in FOLLOWED and to_run(page)} == {}
    assert all(to_run(page) for page in FOLLOWED)


# --- what is said about those that are not run --------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES)
def test_a_block_that_is_left_out_says_why_or_where_it_is_run(page):
    for block in blocks(page):
        if block.not_run is not None:
            assert len(block.not_run.split()) >= 2, block.place
        if "run by" in block.notes:
            assert (ROOT / block.notes["run by"]).is_file(), block.place
        unknown = set(block.notes) - {"file", "exits", "output", "given", "run by", "not run", "test"}
        assert not unknown, block.place


def test_a_command_is_named_as_one():
    other_names = {"sh", "shell", "zsh", "shell-session", "bash-session", "py", "python3", "pycon", "ipython"}
    assert [block.place for page in PAGES for block in blocks(page) if block.language.lower() in other_names] == []


def test_ci_runs_the_commands_that_are_said_to_be_its():
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    theirs = [block for page in PAGES for block in blocks(page) if block.notes.get("run by") == ".ci/run"]
    commands = [line.split("#")[0].strip() for block in theirs for line in block.text.splitlines() if line.strip()]
    assert commands
    assert [command for command in commands if command and command not in script] == []


def test_every_make_target_that_a_page_names_exists():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = {name for page in PAGES for name in re.findall(r"\bmake ([a-z-]+)`", read_page(page))}
    assert named
    assert named <= targets


def test_a_file_that_a_reader_is_asked_to_write_is_named_in_the_text_above_it():
    for page in PAGES:
        text, listed = read_page(page), [block for block in blocks(page) if block.file is not None]
        for block in listed:
            above = "\n".join(text.splitlines()[: block.line - 2])[-700:]
            assert f"`{block.file}`" in above, block.place


def test_every_link_to_a_file_of_the_repository_leads_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", read_page(page)):
            if "://" not in target:
                assert ((ROOT / page).parent / target).is_file(), f"{page}: {target}"


def test_every_link_to_a_heading_leads_to_one():
    for page in PAGES:
        for target, heading in re.findall(r"\]\(([^)#]*)#([^)]+)\)", read_page(page)):
            text = read_page(page) if not target else ((ROOT / page).parent / target).read_text(encoding="utf-8")
            headings = [
                re.sub(r"[^\w -]", "", line.lstrip("# ")).lower() for line in text.splitlines() if line[:1] == "#"
            ]
            assert heading in [each.strip().replace(" ", "-") for each in headings], f"{page}: #{heading}"


def test_the_picture_of_the_graph_is_the_graph():
    from muvap_assets.definitions import defs

    (picture,) = [block.text for block in blocks("README.md") if block.language == "mermaid"]
    drawn = {
        pair for pair in re.findall(r"(\w+)(?:\[[^]]*\])? --> (\w+)", picture) if all("_" in name for name in pair)
    }
    graph = defs.resolve_asset_graph()
    made = [key for key in graph.get_all_asset_keys() if graph.get(key).is_materializable and len(key.path) == 2]
    assert drawn == {
        ("_".join(up.path), "_".join(key.path)) for key in made for up in graph.get(key).parent_keys & set(made)
    }


# --- settings that the pages list ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES)
def test_every_yaml_is_a_datasets_file(page, tmp_path):
    for block in blocks(page):
        if block.language == "yaml":
            parse_datasets(yaml.safe_load(block.text), tmp_path / "datasets.yaml")


def keys(page, heading):
    """Key and default of each row below a heading."""
    (table,) = tables(page, heading)
    return {code(row[0]): row[1] for row in table[1:]}


CORPUS_KEYS = set(CorpusEntry.model_fields)


@pytest.mark.parametrize(
    ("page", "heading", "model", "but"),
    [
        ("docs/asd.md", "Keys of every corpus", CorpusEntry, set()),
        ("docs/asd.md", "Keys of kind tsv", TsvCorpus, CORPUS_KEYS),
        ("docs/asd.md", "Keys of kinds ava and wasd", AvaCorpus, CORPUS_KEYS),
        ("docs/asd.md", "Keys of kind msdwild", MsdwildCorpus, CORPUS_KEYS),
        ("docs/asd.md", "Keys for all", Datasets, {"corpora", "ref2va"}),
        ("docs/ref2va.md", "Keys of a dataset", Ref2VAEntry, set()),
    ],
)
def test_the_keys_of_a_table_are_those_of_the_code_with_their_defaults(page, heading, model, but):
    listed = keys(page, heading)
    fields = {name: field for name, field in model.model_fields.items() if name not in but}
    assert set(listed) == set(fields)
    for name, field in fields.items():
        if field.is_required():
            assert listed[name] == "required", name
        elif field.default is not None:
            default = json.dumps(field.default) if isinstance(field.default, bool) else str(field.default)
            assert listed[name] == f"`{default}`", name
        else:
            assert listed[name] != "required", name


def test_the_columns_of_the_canonical_manifest_are_those_of_the_code():
    (table,) = tables("docs/asd.md", "The canonical manifest")
    assert {code(row[0]): row[1] for row in table[1:]} == {
        **dict.fromkeys(MANIFEST_COLUMNS, "yes"),
        **dict.fromkeys(OPTIONAL_COLUMNS, "no"),
    }


def test_the_limits_of_the_asd_line_are_those_of_the_code():
    from muvap_assets.asd import timeline
    from muvap_assets.asd.corpora import fields, tsv
    from muvap_assets.media import faces, sound_arrays, sound_files, video_faces

    (table,) = tables("docs/asd.md", "Limits, and what is decided where the contract leaves a choice")
    assert {row[0]: [int(number) for number in re.findall(r"\d+", row[1])][-1] for row in table[1:]} == {
        "frame rate": timeline._MAX_FPS,
        "sample rate of a recording": sound_files.MAX_RATE_HZ,
        "channels of a NumPy waveform": sound_arrays.MAX_NPY_CHANNELS,
        "characters of a `sample_id`": fields.MAX_SAMPLE_ID_CHARACTERS,
        "characters of a field, which bounds a label list": fields.MAX_FIELD_CHARACTERS,
        "seconds of `start_sec`": tsv._MAX_START_SEC,
        "pixels of a JPEG crop": faces.JPEG_PIXELS_MAX,
        "side of a crop out of a video, in longer sides of the picture": video_faces.MAX_SIDE_RATIO,
    }


@pytest.mark.parametrize("page", ["docs/asd.md", "docs/ref2va.md"])
def test_the_checks_of_a_page_are_those_that_are_declared_in_their_words(page):
    from muvap_assets.defs import asd, ref2va

    declared = {
        "docs/asd.md": {
            "asd/manifest": asd.MANIFEST_CHECKS,
            "asd/loudness_index": asd.LOUDNESS_CHECKS,
            "asd/packed_shards": asd.PACK_CHECKS,
        },
        "docs/ref2va.md": {
            "ref2va/manifest": ref2va.MANIFEST_CHECKS,
            "ref2va/encoded_latents": ref2va.ENCODE_CHECKS,
            "ref2va/parquet_cache_index": ref2va.INDEX_CHECKS,
        },
    }[page]
    (table,) = tables(page, "Checks")
    assert [[code(row[0]), code(row[1]), row[2]] for row in table[1:]] == [
        [asset, name, text] for asset, checks in declared.items() for name, text in checks.items()
    ]


def test_the_keys_of_a_raw_row_are_those_of_the_code():
    from muvap_assets.ref2va.contract import ReferenceKind
    from muvap_assets.ref2va.raw_rows import ROW_KEYS

    rows, references = tables("docs/ref2va.md", "Raw rows")
    assert [code(row[0]) for row in rows[1:]] == list(ROW_KEYS)
    assert [code(row[0]) for row in references[1:]] == [str(kind) for kind in ReferenceKind]


# --- the walk itself ---------------------------------------------------------------------------------------------------------


def test_a_walk_fails_where_a_command_fails_or_prints_something_else(tmp_path):
    (tmp_path / "docs").mkdir()
    page, place = "docs/page.md", tmp_path / "docs" / "page.md"
    for text, reason in (
        ("```bash\nfalse\n```\n", "exited with 1, documented is 0"),
        ("<!-- exits: 3 -->\n```bash\ntrue\n```\n", "exited with 0, documented is 3"),
        ("```console\n$ echo one\ntwo\n```\n", "printed was\none"),
        ("```python\nprint(1)\n```\n\n<!-- output -->\n```text\n2\n```\n", "printed was\n1"),
        ("```python\nraise SystemExit(2)\n```\n", "exited with 2"),
    ):
        place.write_text(text)
        with pytest.raises(AssertionError, match=re.escape(reason)):
            Walk(page, tmp_path, source=tmp_path).follow()


def test_a_walk_runs_a_page_as_one_reader_would(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "page.md").write_text(
        "<!-- file: mine/a.txt -->\n```text\nhello\n```\n"
        "```bash\nexport NAME=world\ncat mine/a.txt\n```\n"
        "<!-- output -->\n```text\nhello\n```\n"
        "```console\n$ echo $NAME \\\n    again\nworld ...\n$ echo two\ntwo\n```\n"
        "## A program\n```python\nx = 1\nprint('first')\n```\n"
        "<!-- output -->\n```text\nfirst\n```\n```python\nprint(x + 1)\n```\n<!-- output -->\n```text\n2\n```\n"
        "<!-- not run: it needs the moon -->\n```bash\nfalse\n```\n"
    )
    walk = Walk("docs/page.md", tmp_path, source=tmp_path)
    assert walk.follow() == to_run("docs/page.md", tmp_path)
    assert len(walk.ran) == 4


def test_what_is_shown_may_leave_something_out():
    block = blocks("README.md")[0]
    assert_shown("one\n...\nthree\n", "one\ntwo\nthree\n", block)
    with pytest.raises(AssertionError):
        assert_shown("one\n...\nfour\n", "one\ntwo\nthree\n", block)


def test_the_markers_and_targets_of_contributing_are_those_there_are():
    import tomllib

    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]["ini_options"]
    (markers,) = tables("CONTRIBUTING.md", "Tests")
    assert {code(row[0]): row[1] for row in markers[1:]} == dict(
        marker.split(": ", 1) for marker in settings["markers"]
    )
    (targets,) = tables("CONTRIBUTING.md", "Set up")
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert {code(row[0]).removeprefix("make ") for row in targets[1:]} == set(phony[1].split())
