"""The demo's folders are written once, whole; a kill leaves nothing that stays."""

import subprocess
import sys
from pathlib import Path

from muvap_assets.demo import sources
from muvap_assets.demo.made_once import make_once
from muvap_assets.ref2va import tiny

KILLED = """
import sys
from pathlib import Path
from muvap_assets.demo.made_once import make_once
def write(folder):
    (folder / "half").write_text("half")
    print("ready", flush=True)
    sys.stdin.read()
make_once(Path(sys.argv[1]), write, sys.argv[2])
"""


def test_a_folder_is_written_once_a_version_of_its_code_and_whole_after_a_kill(tmp_path):
    folder, code = tmp_path / "demo", tmp_path / "code.py"
    code.write_text("1")
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(folder), str(code)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout.readline() == "ready\n"
        child.kill()
    assert not folder.exists()

    def write(place: Path) -> None:
        (place / "whole").write_text(code.read_text())

    assert [make_once(folder, write, str(code)) for _ in range(2)] == [True, False]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["code.py", "demo"]
    code.write_text("2")
    assert make_once(folder, write, str(code))
    assert (folder / "whole").read_text() == "2"
    assert not (folder / "half").exists()


def test_what_a_killed_writer_of_the_checkpoint_left_is_removed(tmp_path, monkeypatch):
    left = tmp_path / f".tiny-checkpoint-{'0' * 32}"
    left.mkdir()
    (tmp_path / f"{left.name}.lock").touch()
    monkeypatch.setattr(sources, "write_demo_corpus", lambda folder: False)
    monkeypatch.setattr(sources, "write_demo_datasets", lambda folder: False)
    monkeypatch.setattr(tiny, "write_tiny_checkpoint", lambda folder: folder.mkdir() or folder)
    assert sources.write_sources(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["tiny-checkpoint"]
