"""An option is one thing however it is given: a key of datasets.yaml, a flag of the command, a field of a record."""

import math
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from muvap_assets.asd.contract import Corpus
from muvap_assets.asd.corpora.tsv import TsvCorpus
from muvap_assets.asd.policy import Policy
from muvap_assets.cli.main import main
from muvap_assets.datasets import Ref2VAEntry, parse_datasets
from muvap_assets.errors import ConfigError
from muvap_assets.ref2va.contract import Dataset, DatasetOptions
from muvap_assets.ref2va.encoder_spec import EncoderSpec
from resources.h3 import MiniMaxH3Resource

# What only the platform asks for, or the command takes as an argument or by another name.
NO_FLAG = {"kind", "manifest", "dataset", "max_age_hours", "parts"}
LINES = {
    "asd": (TsvCorpus, "pack", "corpora", {"kind": "tsv", "manifest": "a.tsv"}),
    "ref2va": (Ref2VAEntry, "encode", "ref2va", {"manifest": "a.jsonl"}),
}
OPTIONS = [(line, name) for line, (entry, *_) in LINES.items() for name in entry.model_fields if name not in NO_FLAG]
PROBES = {
    int: [*(-1, 0, 1, 2, 31, 32, 124, 130, 999_999, 10**6), *(104_857, 104_858, 768_000, 768_001, 2**63 - 1, 2**63)],
    float: [-0.1, 0.0, 0.5, 1.0, 1.1, 60.0, -60.0, math.nan, math.inf],
    str: ["packed", "sft", "fail", "quarantine", "Packed", ""],
}


def by_key(line, **options):
    """The message that datasets.yaml gives, or the value that it hands on."""
    _, _, section, required = LINES[line]
    (name,) = options or [None]
    try:
        datasets = parse_datasets({section: {"a": {**required, **options}}}, Path("/datasets.yaml"))
    except ConfigError as error:
        (told,) = [told for told in str(error).splitlines() if told.startswith(f"  {section}.a.{name}: ")]
        return told.split(": ", 1)[1]
    return dict(getattr(datasets, section)["a"])


def by_flag(line, name, *words):
    """The message that the command gives, or the value that it hands on."""
    command = main.commands[LINES[line][1]]
    (flag,) = [parameter for parameter in command.params if parameter.name == name]
    handed = {}
    run = CliRunner().invoke(click.Command("x", params=[flag], callback=handed.update), [*words])
    if run.exit_code:
        assert run.exit_code == 2, run.output
        return run.stderr.splitlines()[-1].split(": ", 2)[2]
    return handed


@pytest.mark.parametrize(("line", "name"), OPTIONS)
def test_every_option_of_an_entry_is_a_flag_of_the_command_with_the_same_default(line, name):
    assert by_flag(line, name)[name] == by_key(line)[name]


@pytest.mark.parametrize(("line", "name"), OPTIONS)
def test_every_option_has_the_same_range_and_message_in_the_file_and_on_the_command_line(line, name):
    if name in ("allow_outside", "on_violation"):  # flags without a value
        return
    default = by_key(line)[name]
    kind = int if default is None else str if isinstance(default, str) else type(default)
    outcomes = {}
    for value in PROBES[kind]:
        if name in ("width", "height") and value > 10_000:  # the canvas is too large as a whole
            continue
        given = by_flag(line, name, "--" + name.replace("_", "-"), str(value))
        found = by_key(line, **{name: value})
        outcomes[value] = isinstance(found, str)
        assert (found if isinstance(found, str) else found[name]) == (given if isinstance(given, str) else given[name])
    assert set(outcomes.values()) == {True, False}, "a range that nothing is outside of, or nothing inside"


def test_a_flag_chooses_what_the_key_spells_out():
    assert by_flag("asd", "on_violation", "--quarantine") == {"on_violation": "quarantine"}
    assert by_flag("ref2va", "allow_outside", "--allow-outside") == {"allow_outside": True}


@pytest.mark.parametrize(
    ("make", "wrong"),
    [
        (Policy, {"max_silent_share": 1.5, "max_rejected_share": math.nan, "on_violation": "ignore"}),
        (DatasetOptions, {"format": "packd", "width": 100, "num_frames": 130, "max_images": -1, "decode_check": -1}),
    ],
)
def test_a_record_names_every_option_that_is_wrong_in_the_files_words(make, wrong):
    with pytest.raises(ConfigError) as raised:
        make(**wrong)
    line = "asd" if make is Policy else "ref2va"
    for name, value in wrong.items():
        assert f"{name}: {by_key(line, **{name: value})}" in str(raised.value)


def test_what_the_file_leaves_out_is_what_the_records_have_by_themselves():
    datasets = parse_datasets(
        {section: {"a": required} for _, _, section, required in LINES.values()}, Path("/datasets.yaml")
    )
    corpus, dataset = datasets.corpus("a"), datasets.ref2va_dataset("a")
    assert corpus == Corpus(name="a", source=corpus.source, dataset="a")
    assert dataset == Dataset(name="a", manifest=Path("/a.jsonl"))


def test_the_token_limit_is_the_datasets_alone():
    """An encoder with a limit of its own would refuse rows of a manifest that was published under a higher one."""
    for kind in (EncoderSpec, MiniMaxH3Resource):
        names = getattr(kind, "model_fields", None) or kind.__dataclass_fields__
        assert not [name for name in names if "tokens" in name]
