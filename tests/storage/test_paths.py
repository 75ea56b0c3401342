"""Paths of options, variables and entries: ``~`` and ``$NAME`` are expanded, and a data root is where it says, or refused."""

import os
import pwd
import subprocess
import sys
from pathlib import Path
from typing import get_args

import click
import pytest
from click.testing import CliRunner

from muvap_assets.cli.main import main
from muvap_assets.cli.paths import PathArgument
from muvap_assets.datasets import CorpusKind, parse_datasets
from muvap_assets.definitions import build_defs
from muvap_assets.errors import ConfigError
from muvap_assets.storage.paths import expanded, written
from resources.corpora import CorporaResource
from resources.h3 import MiniMaxH3Resource
from resources.storage import StorageResource

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A home folder, and variables of the tests' own."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("DISK", "/media/disk")
    monkeypatch.setenv("AT_HOME", "~/deep")
    monkeypatch.setenv("EMPTY", "")
    for name in ("NOWHERE", "MUVAP_DATA_ROOT", "MUVAP_DATASETS", "MUVAP_H3_CHECKPOINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return folder


def test_a_home_and_variables_are_put_in(home):
    user = pwd.getpwuid(os.getuid())
    for text, path in {
        "~": home,
        "~/x y": home / "x y",
        f"~{user.pw_name}/x": Path(user.pw_dir) / "x",
        "$DISK/${DISK}x": Path("/media/disk//media/diskx"),
        "$AT_HOME/x": home / "deep" / "x",
        "x/~": Path("x/~"),
        "./~": Path("~"),
        "a$/b": Path("a$/b"),
    }.items():
        assert expanded(text) == path, text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("$NOWHERE/x", r"\$NOWHERE of the environment is not set or is empty"),
        ("${EMPTY}/$NOWHERE", r"\$EMPTY, \$NOWHERE of the environment is not set"),
        ("~nobody-of-this-name/x", r"no home folder of ~nobody-of-this-name is known.* Write \./~nobody-of-this-name"),
    ],
)
def test_what_cannot_be_put_in_is_refused_by_its_name(text, message):
    with pytest.raises(ValueError, match=message):
        expanded(text)


def parameters(command, name="muvap"):
    if isinstance(command, click.Group):
        context = click.Context(command)
        for sub in command.list_commands(context):
            yield from parameters(command.get_command(context, sub), f"{name} {sub}")
        return
    yield from ((name, parameter) for parameter in command.params)


def test_every_path_of_every_command_is_expanded():
    paths = [(name, p.name, p.type) for name, p in parameters(main) if isinstance(p.type, click.Path)]
    assert len(paths) >= 18
    assert [where for *where, kind in paths if not isinstance(kind, PathArgument)] == []


def test_a_command_reads_a_path_that_the_shell_did_not_expand(home, monkeypatch):
    monkeypatch.setenv("CORPUS", str(home))
    (home / "broken.tsv").write_text("x\n")
    for text in ("~/broken.tsv", "$CORPUS/broken.tsv"):
        found = CliRunner().invoke(main, ["validate", text])
        assert "NOT VALID" in found.output, text
    found = CliRunner().invoke(main, ["validate", "$NOWHERE/broken.tsv"])
    assert (found.exit_code, len(found.output.splitlines())) == (1, 1)
    assert "FILE: '$NOWHERE/broken.tsv': $NOWHERE of the environment is not set" in found.output
    assert "--datasets: '$NOWHERE/x'" in CliRunner().invoke(main, ["maintenance", "--datasets", "$NOWHERE/x"]).output


def test_the_data_root_of_the_environment_is_expanded_and_has_to_be_absolute(home):
    (home / "asd" / "manifest" / "talks").mkdir(parents=True)

    def versions(root, *options):
        command = ["versions", "asd/manifest", "talks", *options]
        return CliRunner().invoke(main, command, env={"MUVAP_DATA_ROOT": root})

    assert versions("~").exit_code == versions("$HOME").exit_code == 0
    for root in ("home", "./home", "$DISK_OF_NONE/home", "~nobody-of-this-name"):
        found = versions(root)
        assert (found.exit_code, len(found.output.splitlines())) == (1, 1)
        assert found.output.startswith(f"Error: MUVAP_DATA_ROOT: {root!r}")
    assert f"Write {Path.cwd() / 'home'}." in versions("home").output
    assert versions("home", "--data-root", "home").exit_code == 0


def test_the_platform_uses_the_paths_of_the_environment_expanded(home, monkeypatch):
    (home / "datasets.yaml").write_text("")
    monkeypatch.setenv("MUVAP_DATASETS", "~/datasets.yaml")
    monkeypatch.setenv("MUVAP_DATA_ROOT", "~/data")
    monkeypatch.setenv("MUVAP_H3_CHECKPOINT", "$DISK/h3")
    resources = build_defs().resources
    assert resources["layout"].data_root == str(home / "data")
    assert resources["datasets"].datasets_file == str(home / "datasets.yaml")
    assert resources["encoder"].checkpoint == "/media/disk/h3"
    monkeypatch.setenv("MUVAP_DATA_ROOT", "data")
    with pytest.raises(ConfigError, match=r"MUVAP_DATA_ROOT: 'data' is relative; required: an absolute path"):
        build_defs()
    for name in ("MUVAP_DATA_ROOT", "MUVAP_H3_CHECKPOINT", "MUVAP_DATASETS"):
        with monkeypatch.context() as patch:
            patch.setenv("MUVAP_DATA_ROOT", str(home))
            patch.setenv(name, "$NOWHERE/x")
            with pytest.raises(ConfigError, match=rf"{name}: '\$NOWHERE/x': \$NOWHERE of the environment"):
                build_defs()


def test_the_paths_of_a_runs_configuration_are_expanded_too(home):
    (home / "datasets.yaml").write_text("keep_versions: 7")
    assert StorageResource(data_root="~/data").create_resource(None).root == home / "data"
    assert CorporaResource(datasets_file="~/datasets.yaml").create_resource(None).keep_versions == 7
    encoder = MiniMaxH3Resource(checkpoint="$DISK/h3", device="cpu").create_resource(None)
    assert encoder.checkpoint == Path("/media/disk/h3")
    with pytest.raises(ConfigError, match="data_root: 'data' is relative"):
        StorageResource(data_root="data").create_resource(None)


@pytest.mark.parametrize("command", [["-m", "muvap_assets.defs.demo"], ["deploy/ci/materialize.py", "--all"]])
def test_no_folder_is_made_for_a_data_root_that_is_refused(command, tmp_path):
    environment = {**os.environ, "MUVAP_DATA_ROOT": "data", "PYTHONPATH": str(ROOT)}
    words = [str(ROOT / word) if word.endswith(".py") else word for word in command]
    done = subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert "MUVAP_DATA_ROOT: 'data' is relative" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


NEEDED = {
    "tsv": {"manifest": "m"},
    "ava": {"root": "r", "split": "val"},
    "wasd": {"root": "r", "split": "val"},
    "msdwild": {"root": "r", "split": "few.val"},
}


def entries():
    """Each kind of entry with the keys it needs, and each key that holds a path."""
    yield "ref2va", {}, "manifest"
    for kind in get_args(get_args(CorpusKind)[0]):
        (name,) = get_args(kind.model_fields["kind"].annotation)
        for key, field in kind.model_fields.items():
            if "Path" in str(field.annotation):
                yield "corpora", {"kind": name, **NEEDED[name]}, key


@pytest.mark.parametrize(("section", "entry", "key"), [*entries()])
def test_every_path_of_every_entry_is_expanded_and_told_with_the_other_wrong_keys(section, entry, key, home):
    file = Path("/etc/muvap/datasets.yaml")

    def parsed(text):
        datasets = parse_datasets({section: {"one": {**entry, key: text}}}, file)
        return getattr(getattr(datasets, section)["one"], key)

    assert [parsed(text) for text in ("~/x", "$DISK/x", "x", "../x", "./~x")] == [
        home / "x",
        Path("/media/disk/x"),
        Path("/etc/muvap/x"),
        Path("/etc/x"),
        Path("/etc/muvap/~x"),
    ]
    raw = {section: {"one": {**entry, key: "$NOWHERE/x"}, "two": {**entry, key: 5}}}
    with pytest.raises(ConfigError) as found:
        parse_datasets(raw, file)
    lines = str(found.value).splitlines()
    assert lines[0] == f"{file}: 2 wrong entries"
    assert lines[1].strip().startswith(f"{section}.one.{key}: $NOWHERE of the environment is not set or is empty")
    assert lines[2].strip().startswith(f"{section}.two.{key}: Input is not a valid path")


def test_a_folder_with_a_dollar_sign_in_its_name_is_handed_over_as_it_is(tmp_path, monkeypatch):
    monkeypatch.delenv("MUVAP_DATA_ROOT", raising=False)
    folder = tmp_path / "a$b" / "data"
    defs = build_defs(data_root=folder)
    assert defs.resources["layout"].create_resource(None).root == folder.resolve()
    assert defs.resources["encoder"].create_resource(None).checkpoint == (folder / "demo/tiny-checkpoint").resolve()
    assert expanded(written(folder)) == folder
