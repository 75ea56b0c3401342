"""A data root of a group: its members publish into one root, and whoever may only read it reads it all and writes nothing.

The users are made of numbers by ``setpriv``, for which the tests have to run as root. They keep one power of root's, to read
every file, since the interpreter may lie where nobody else gets; each mode is looked at instead.
"""

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from corpus_builder import CorpusBuilder
from skipping import skip_or_fail

from muvap_assets.journal import events
from muvap_assets.layout import Layout
from muvap_assets.publish import current_version
from muvap_assets.ref2va import row_store

ANN, BOB, READER = 54321, 54322, 54323
GROUP, OTHER_GROUP = 54400, 54401

COMMANDS = """
import json, sys
from click.testing import CliRunner
from muvap_assets.cli.main import main
done = [CliRunner().invoke(main, arguments) for arguments in json.loads(sys.argv[1])]
print(json.dumps([[each.exit_code, each.stdout, each.stderr + repr(each.exception or "")] for each in done]))
"""

ROWS = """
import sys
from pathlib import Path
from published_rows import clean_record, dataset_artifact
from muvap_assets.layout import Layout
from muvap_assets.ref2va.publication import FinishedRow, PublicationOptions, publish_dataset
from muvap_assets.ref2va.records import write_shard
from muvap_assets.ref2va.row_retention import in_use
from muvap_assets.ref2va.row_store import row_file
from muvap_assets.storage.files import replacing
layout, rows = Layout(Path(sys.argv[1])), []
with in_use(layout.row_store):
    for number, name in enumerate(sys.argv[2:], start=1):
        path = row_file(layout.row_store, name)
        if not path.exists():
            with replacing(path) as partial:
                write_shard(partial, [clean_record(name)], {"encoder": "test", "parts": {}})
        rows.append(FinishedRow(sample_id=name, path=path, row=number))
    options = PublicationOptions(format=clean_record("a").format)
    assert publish_dataset(dataset_artifact(layout.root), rows, options, workers=1).published.created
"""


@pytest.fixture
def place():
    """A folder that every user can reach, unlike those of other tests."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def corpus(place):
    """An empty corpus that everybody can read."""
    (place / "corpus").mkdir()
    return CorpusBuilder(place / "corpus")


@pytest.fixture
def root(place):
    """An empty folder in which everything belongs to the group."""
    setpriv = shutil.which("setpriv")
    if os.geteuid() != 0 or not setpriv or subprocess.run([*as_user(ANN, GROUP), "true"], check=False).returncode:
        skip_or_fail("only root can run setpriv, which makes other users")
    root = place / "root"
    root.mkdir()
    os.chown(root, ANN, GROUP)
    root.chmod(0o2775)
    return root


def as_user(user, group):
    power = "+dac_read_search"
    return [
        *("setpriv", "--reuid", str(user), "--regid", str(user), "--groups", str(group)),
        *(f"--bounding-set=-all,{power}", f"--inh-caps=-all,{power}", f"--ambient-caps=-all,{power}"),
    ]


def run(user, group, script, *arguments):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [*as_user(user, group), sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment, umask=0o002)
    assert done.returncode == 0, done.stderr
    return done.stdout


def muvap(user, group, *commands):
    """Runs commands one after the other in a process of a user; what each of them printed."""
    done = json.loads(run(user, group, COMMANDS, json.dumps(commands)))
    for command, (code, out, error) in zip(commands, done, strict=True):
        assert code == 0, (command, out, error)
    return [out for _, out, _ in done]


def states(root):
    """Everything below a folder, by what changes when it is written to."""
    found = {path: path.lstat() for path in [root, *root.rglob("*")]}
    return {path: (state.st_mtime_ns, state.st_ctime_ns, state.st_mode) for path, state in found.items()}


def test_two_users_of_a_group_publish_in_one_root_and_a_third_reads_it_and_writes_nothing(root, corpus):
    layout = Layout(root)
    artifact = layout.asd_packed_shards("talks")
    pack = ["pack", str(corpus.root / "talks.tsv"), "-o", str(root)]

    corpus.row("one")
    corpus.write("talks.tsv")
    muvap(ANN, GROUP, pack)
    first = current_version(artifact)
    run(ANN, GROUP, ROWS, str(root), "aa1")

    corpus.row("two")
    corpus.write("talks.tsv")
    at_once = ["maintenance", "--keep", "0", "--grace-hours", "0", "--row-grace-days", "0", "--data-root", str(root)]
    back = ["rollback", "asd/packed_shards", "talks", first, "--data-root", str(root)]
    muvap(BOB, GROUP, pack, back)
    run(BOB, GROUP, ROWS, str(root), "aa1", "bb2")
    muvap(ANN, GROUP, pack)
    second = current_version(artifact)
    assert [event.version for event in events(artifact)] == [first, second, first, second]
    dataset = layout.ref2va_parquet_cache_index("demo")
    assert {path.stat().st_uid for path in row_store.row_file(layout.row_store, "aa1").parent.iterdir()} == {ANN}

    for path in [root, *root.rglob("*")]:
        state = path.lstat()
        if stat.S_ISLNK(state.st_mode):
            continue
        assert (state.st_uid in (ANN, BOB), state.st_gid) == (True, GROUP), path
        assert stat.S_IMODE(state.st_mode) == (0o2775 if path.is_dir() else 0o664), (path, oct(state.st_mode))

    before = states(root)
    at = ["--data-root", str(root)]
    seen = muvap(
        READER,
        OTHER_GROUP,
        ["inspect", str(artifact.current)],
        ["verify", str(artifact.current)],
        ["inspect", str(dataset.current)],
        ["verify", "--full", str(dataset.current)],
        ["versions", "asd/packed_shards", "talks", *at],
        ["diff", f"asd/packed_shards/talks@{first}", "asd/packed_shards/talks", *at],
        [*at_once, "--dry-run"],
        ["purge", "--sample", "three", "--dry-run", *at],
    )
    assert states(root) == before
    assert second in seen[4]
    assert "1 added, 0 removed" in seen[5]
    assert f"version: asd/packed_shards [talks] {first}" in seen[6]

    removed = muvap(ANN, GROUP, at_once)[0]
    assert removed.replace(" removed,", " would be removed,") == seen[6]
    assert {path.name for path in artifact.folder.iterdir()} == {second, "current"}
