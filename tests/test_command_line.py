"""How the command behaves at its edges: help, wrong use, missing files, interruptions; each verb, each exit code.

What the verbs do is in test_cli.py and in the tests of each line.
"""

import os
import re
import signal
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from muvap_assets.cli.main import main
from muvap_assets.layout import Layout
from muvap_assets.publish import content_version, current_version

MUVAP = [sys.executable, "-m", "muvap_assets.cli.main"]


def commands(command=main, path=("muvap",)):
    """Every command of the tree, with its words."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from commands(command.get_command(context, name), (*path, name))


ALL = [pytest.param(path, command, id=" ".join(path)) for path, command in commands()]


def muvap(*arguments, cwd=None, environment=None):
    words = [*MUVAP, *map(str, arguments)]
    return subprocess.run(
        words, capture_output=True, text=True, check=False, cwd=cwd, env={**os.environ, **(environment or {})}
    )


@pytest.fixture
def manifest(corpus):
    corpus.row("one")
    corpus.row("two")
    return corpus.write()


# --- help ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("path", "command"), ALL)
def test_help_names_every_option_and_argument_and_begins_with_a_sentence(path, command):
    shown = CliRunner().invoke(main, [*path[1:], "--help"])
    assert shown.exit_code == 0
    first = (command.help or "").splitlines()[0]
    assert re.fullmatch(r"[A-Z][^.]{10,}\.( [A-Z].*\.)?", first), first
    for parameter in command.params:
        if isinstance(parameter, click.Argument):
            assert parameter.human_readable_name in command.help, parameter.name
        else:
            assert parameter.help, parameter.opts
            assert parameter.opts[-1] in shown.output


def test_the_tree_holds_the_verbs_that_the_documentation_names():
    assert {path[1] for path, _ in commands() if len(path) > 1} >= {
        *("validate", "pack", "inspect", "verify", "demo", "encode", "index", "capacities", "tiny-checkpoint"),
        *("versions", "diff", "rollback", "maintenance", "purge", "ops"),
    }
    assert ("muvap", "ops", "release-run") in {path for path, _ in commands()}


def test_the_module_is_the_command_and_not_a_file_that_does_nothing():
    """Without its guard it would end with exit code 0 and have done nothing."""
    done = muvap("--help")
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "Usage: muvap [OPTIONS] COMMAND [ARGS]...")


# --- wrong use ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("path", "command"), ALL)
def test_an_unknown_flag_is_exit_code_2_on_standard_error(path, command):
    shown = CliRunner().invoke(main, [*path[1:], "--no-such-flag"])
    assert (shown.exit_code, shown.stdout) == (2, "")
    assert re.search("No such option:? '?--no-such-flag", shown.stderr)
    assert shown.stderr.startswith("Usage:")


@pytest.mark.parametrize("words", [["no-such-verb"], ["index", "no-such-verb"]])
def test_an_unknown_verb_is_exit_code_2_on_standard_error(words):
    shown = CliRunner().invoke(main, words)
    assert (shown.exit_code, shown.stdout) == (2, "")
    assert "No such command 'no-such-verb'" in shown.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["validate", "{missing}"],
        ["pack", "{missing}", "-o", "out"],
        ["inspect", "{missing}"],
        ["verify", "{missing}"],
        ["capacities", "{missing}"],
        ["index", "rebuild", "{missing}"],
        ["encode", "--manifest", "{missing}", "--checkpoint", ".", "--output-dir", "out"],
        ["versions", "asd/manifest", "talks", "--data-root", "{missing}"],
        ["maintenance", "--datasets", "{missing}", "--data-root", "."],
    ],
    ids=lambda words: words[0],
)
def test_a_file_that_is_not_there_is_exit_code_2_and_named(tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    shown = CliRunner().invoke(main, [word.format(missing="missing.tsv") for word in words])
    assert (shown.exit_code, shown.stdout) == (2, "")
    assert "missing.tsv" in shown.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["empty.tsv", "header.tsv", "empty.jsonl", "list.json", "data.json", "blank.jsonl"])
@pytest.mark.parametrize("verb", ["validate", "pack"])
def test_a_manifest_without_a_row_is_never_exit_code_0(tmp_path, name, verb):  # B33
    path = tmp_path / name
    texts = {"header.tsv": "sample_id\taudio_path\tvisual_path\tsource_fps\tlabels\tstart_sec\n", "list.json": "[]"}
    path.write_text({**texts, "data.json": '{"data": []}', "blank.jsonl": "\n\n"}.get(name, ""))
    if verb == "pack" and path.suffix != ".tsv":
        return
    words = ["validate", path] if verb == "validate" else ["pack", path, "-o", tmp_path / "out"]
    shown = CliRunner().invoke(main, [str(word) for word in words])
    assert shown.exit_code == 1
    assert "manifest_empty" in shown.stdout or "column_missing" in shown.stdout
    assert not (tmp_path / "out" / "asd").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file; the folder and the loop below stand for it")
def test_a_file_closed_to_us_is_told(manifest):
    manifest.chmod(0)
    shown = muvap("validate", manifest)
    assert (shown.returncode, "Permission denied" in shown.stdout + shown.stderr) == (1, True)


def test_an_output_below_a_file_is_one_line_and_exit_code_1(manifest, tmp_path):
    (tmp_path / "file").write_text("x")
    shown = muvap("pack", manifest, "-o", tmp_path / "file" / "out")
    assert shown.returncode == 1
    assert shown.stderr.splitlines()[-1].startswith("error: ")
    assert "Not a directory. Check the path, its permissions and the disk." in shown.stderr
    assert "Traceback" not in shown.stderr


def test_a_reader_that_leaves_early_is_no_error_of_ours(manifest):
    command = (
        f"{sys.executable} -c 'from muvap_assets.cli.main import main; main()' validate {manifest} --json | head -c 1"
    )
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.stdout, "Traceback" in done.stderr) == ("{", False)


# --- interruptions ------------------------------------------------------------------------------------------------------

DRIVER = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets what it starts in the background ignore it
place, after, number = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
count = 0

def hook(event, arguments):
    # Opening, renaming and linking are where a run touches the disk: a signal comes right before the one that was counted to.
    global count
    if event in ("open", "os.rename", "os.symlink", "os.mkdir") and str(arguments[0]).startswith(place):
        count += 1
        if count == after:
            os.kill(os.getpid(), number)

sys.argv = ["muvap", *sys.argv[4:]]
from muvap_assets.cli.main import main
sys.addaudithook(hook)
try:
    main()
finally:
    print(f"touched {count}", file=sys.stderr)
"""


def interrupted(place, after, number, *arguments):
    words = [sys.executable, "-c", DRIVER, place, after, int(number), *arguments]
    return subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A data root with a published corpus, beside its sources."""
    from corpus_builder import CorpusBuilder

    place = tmp_path_factory.mktemp("interrupted")
    builder = CorpusBuilder(place / "corpus")
    builder.root.mkdir()
    builder.row("one")
    builder.row("two")
    done = CliRunner().invoke(main, ["pack", str(builder.write("talks.tsv")), "-o", str(place / "root")])
    assert done.exit_code == 0, done.output
    return place


def assert_as_published(place, before):
    layout = Layout(place / "root")
    for artifact in (
        layout.asd_manifest("talks"),
        layout.asd_loudness_index("talks"),
        layout.asd_packed_shards("talks"),
    ):
        version = current_version(artifact)
        assert version == before[artifact.name]
        dependent = ("manifest.tsv",) if artifact.name == "manifest" else ()
        assert content_version(artifact.version(version), dependent) == version
    assert list((place / "root" / ".staging").iterdir()) == []


def published(place):
    layout = Layout(place / "root")
    artifacts = (layout.asd_manifest("talks"), layout.asd_loudness_index("talks"), layout.asd_packed_shards("talks"))
    return {artifact.name: current_version(artifact) for artifact in artifacts}


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
    ("verb", "after"),
    [
        ("validate {corpus}/talks.tsv", 2),
        ("pack {corpus}/talks.tsv -o {root}", 3),
        ("pack {corpus}/talks.tsv -o {root}", 25),
        ("inspect {pack}", 2),
        ("verify {pack}", 4),
        ("demo {root}/demo", 6),
        ("versions asd/manifest talks --data-root {root}", 1),
        ("diff asd/packed_shards/talks asd/packed_shards/talks --data-root {root}", 1),
        ("rollback asd/packed_shards talks {version} --data-root {root}", 4),
        ("maintenance --data-root {root}", 1),
        ("purge --sample nobody --data-root {root}", 1),
    ],
)
def test_an_interrupted_verb_leaves_what_was_published_and_ends_with_the_shells_code(root, number, code, verb, after):
    before = published(root)
    pack = Layout(root / "root").asd_packed_shards("talks").current.resolve()
    names = {"corpus": root / "corpus", "root": root / "root", "pack": pack, "version": before["packed_shards"]}
    done = interrupted(root, after, number, *verb.format(**names).split())
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert ("interrupted: what was published stands as it was" in done.stderr) == (number == signal.SIGINT)
    assert_as_published(root, before)


def test_a_terminated_pack_removes_what_it_staged(root):
    before = published(root)
    corpus = root / "corpus"
    (corpus / "talks2.tsv").write_text((corpus / "talks.tsv").read_text().replace("one\t", "uno\t", 1))
    done = interrupted(
        root / "root", 8, signal.SIGTERM, "pack", corpus / "talks2.tsv", "--name", "talks", "-o", root / "root"
    )
    assert done.returncode == 143, done.stderr
    assert "Traceback" not in done.stderr
    assert_as_published(root, before)
