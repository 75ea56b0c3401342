"""What untrusted files must never do: run code, lead out of their folder, or take memory that only a claim of theirs asks for.

docs/security.md says the same in words.
"""

from __future__ import annotations

import ast
import json
import os
import pickle
import re
import shutil
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from loader_packs import random_track, write_small_pack
from media_makers import raw_row, write_rows
from published_rows import clean_record, published

import muvap_assets
import resources
from muvap_assets.asd import loudness
from muvap_assets.asd import manifest_files as asd_files
from muvap_assets.asd.corpora.ava import AvaCorpus
from muvap_assets.asd.packs.reader import PackReader
from muvap_assets.cli.main import main
from muvap_assets.codes import Code
from muvap_assets.datasets import load_datasets
from muvap_assets.errors import ConfigError, FormatError, MuvapError, PublishError, ValidationError
from muvap_assets.layout import Artifact
from muvap_assets.media.audio import probe_audio
from muvap_assets.media.faces import open_npy_faces
from muvap_assets.media.npy import npy_header_bytes
from muvap_assets.publish import current_version, publish, require_current, staged
from muvap_assets.ref2va import manifest_files as ref2va_files
from muvap_assets.ref2va.cache import rebuild_index
from muvap_assets.ref2va.contract import DatasetOptions
from muvap_assets.ref2va.devices import read_devices
from muvap_assets.ref2va.encoder import Stage
from muvap_assets.ref2va.file_info import read_file_info
from muvap_assets.ref2va.raw_manifest import read_raw_manifest
from muvap_assets.ref2va.row_store import RowStore
from muvap_assets.ref2va.standing_rows import read_rows
from muvap_assets.versions import require_whole, standing_versions

V = Code
SOURCES = sorted(
    path for package in (muvap_assets, resources) for folder in package.__path__ for path in Path(folder).rglob("*.py")
)


# --- no code is run ---------------------------------------------------------------------------------------------------

_RESTRICTED = "ref2va/file_info.py"
_FORBIDDEN_MODULES = frozenset({"marshal", "shelve", "dill", "cloudpickle", "joblib", "jsonpickle"})
_NEVER_TRUE = ("shell", "allow_pickle", "trust_remote_code")
_FORBIDDEN_CALLS = {
    **dict.fromkeys(("eval", "exec", "compile", "__import__"), "runs text"),
    **dict.fromkeys(("os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput"), "a shell"),
    **dict.fromkeys(("pickle.load", "pickle.loads", "pickle.Unpickler", "pandas.read_pickle"), "runs a pickle"),
    **dict.fromkeys(("torch.load", "yaml.unsafe_load", "yaml.full_load", "yaml.load_all", "tempfile.mktemp"), "unsafe"),
}


def dangers(tree: ast.AST) -> list[str]:
    """Calls and imports of a module that no file of anybody's may reach."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [f"import {alias.name}" for alias in node.names if alias.name.split(".")[0] in _FORBIDDEN_MODULES]
        elif isinstance(node, ast.ImportFrom):
            module = (node.module or "").split(".")[0]
            found += [f"from {module} import"] if module in _FORBIDDEN_MODULES or module == "pickle" else []
        elif isinstance(node, ast.Call):
            found += [f"line {node.lineno}: {danger}" for danger in dangers_of_call(node)]
    return found


def dangers_of_call(node: ast.Call) -> list[str]:
    """What is wrong with one call, by its name and its options as they are written."""
    name = ast.unparse(node.func)
    options = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
    found = [f"{name} {_FORBIDDEN_CALLS[name]}"] if name in _FORBIDDEN_CALLS else []
    found += [f"{name} with {option}" for option in _NEVER_TRUE if options.get(option, "False") != "False"]
    if name in ("np.load", "numpy.load", "np.lib.format.read_array") and options.get("allow_pickle") != "False":
        found.append(f"{name} does not say allow_pickle=False")
    if name == "yaml.load" and options.get("Loader") not in ("yaml.SafeLoader", "_UniqueKeyLoader"):
        found.append("yaml.load with another loader")
    return found


def test_no_module_of_the_package_calls_what_runs_a_file():
    found = {}
    for path in SOURCES:
        if dangerous := dangers(ast.parse(path.read_text(encoding="utf-8"))):
            found[path.name] = dangerous
    assert found == {}
    assert len(SOURCES) > 100


@pytest.mark.parametrize(
    "code",
    [
        "import subprocess\nsubprocess.run('ls', shell=True)",
        "import os\nos.system('ls')",
        "eval(text)",
        "import pickle\npickle.loads(data)",
        "from pickle import loads",
        "import numpy as np\nnp.load(path)",
        "import numpy as np\nnp.load(path, allow_pickle=True)",
        "import yaml\nyaml.load(text, Loader=yaml.Loader)",
        "import torch\ntorch.load(path)",
        "import dill",
        "loader.from_pretrained(folder, trust_remote_code=True)",
    ],
)
def test_the_search_for_dangers_finds_each_kind(code):
    assert dangers(ast.parse(code))


def test_only_the_restricted_loader_derives_from_an_unpickler_and_it_knows_no_function():
    with_unpickler = [path for path in SOURCES if "Unpickler" in path.read_text(encoding="utf-8")]
    assert [path.as_posix().endswith(_RESTRICTED) for path in with_unpickler] == [True]


class Planted:
    """Leaves a mark when it is loaded."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return (open, (str(self.mark), "w"))


@pytest.fixture
def planted(tmp_path):
    """A pickle that would leave a mark, and the mark, which must never be there."""
    mark = tmp_path / "ran"
    yield pickle.dumps(Planted(mark)), mark
    assert not mark.exists()


def test_the_plant_works_where_it_is_loaded(tmp_path):
    pickle.loads(pickle.dumps(Planted(tmp_path / "ran"))).close()
    assert (tmp_path / "ran").exists()


def object_array(content: bytes) -> bytes:
    """A ``.npy`` file of dtype object, whose data is the pickle."""
    header = b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + content


@pytest.mark.parametrize("read", [open_npy_faces, lambda path: probe_audio(path, 16_000)])
def test_an_object_array_is_refused_and_never_loaded(tmp_path, planted, read):
    path = tmp_path / "array.npy"
    path.write_bytes(object_array(planted[0]))
    with pytest.raises(ValidationError, match="object"):
        read(path)


@pytest.mark.parametrize("name", ["faces", "audio", "labels"])
def test_an_object_array_in_a_pack_is_refused_and_never_loaded(tmp_path, planted, name):
    pack = write_small_pack(tmp_path / "pack", [[random_track(np.random.default_rng(0), "a")]])
    (pack / "shard-000000" / f"{name}.npy").write_bytes(object_array(planted[0]))
    with pytest.raises(FormatError, match="object"):
        PackReader(pack)


def test_an_object_array_in_a_stored_part_is_refused_though_its_digest_is_right(tmp_path, planted):
    import hashlib

    store = RowStore(tmp_path / "store")
    key = "a" * 64
    store.write_part(Stage.TARGET_AUDIO, key, {"latent": np.zeros(2, np.float32)}, "cpu")
    (path,) = (tmp_path / "store" / "parts").rglob("*.part")
    line = path.read_bytes().split(b"\n")[0] + b"\n"
    content = line + object_array(planted[0])
    path.write_bytes(content + hashlib.sha256(content).digest())
    with pytest.raises(FormatError, match="Object arrays cannot be loaded"):
        store.read_part(Stage.TARGET_AUDIO, key)


def test_a_pickle_under_any_name_of_media_is_no_media(tmp_path, planted):
    for name in ("sound.wav", "sound.flac", "sound.npy", "sound.pt", "sound.pkl", "sound"):
        (tmp_path / name).write_bytes(planted[0])
        with pytest.raises(ValidationError):
            probe_audio(tmp_path / name, 16_000)


def test_python_in_a_yaml_file_is_refused(tmp_path):
    path, mark = tmp_path / "datasets.yaml", tmp_path / "ran"
    for tag in ("!!python/object/apply:builtins.open", "!!python/object/new:builtins.open"):
        path.write_text(f"corpora: {tag} ['{mark}', 'w']\n")
        with pytest.raises(ConfigError, match="could not determine a constructor"):
            load_datasets(path)
    assert not mark.exists()


@pytest.mark.parametrize("number", [0x0FFFFFFF, 0x7FFFFFFF])
def test_a_place_in_the_memo_takes_no_memory_that_the_file_does_not_have(tmp_path, number):
    path = tmp_path / "file_info.pkl"
    path.write_bytes(b"\x80\x04Nr" + struct.pack("<I", number) + b".")
    with pytest.raises(FormatError, match=rf"memo place {number} in a file of 9 bytes"):
        read_file_info(path)
    path.write_bytes(b"Np%d\n." % number)
    with pytest.raises(FormatError, match=f"memo place {number}"):
        read_file_info(path)


# --- no path leaves its root ------------------------------------------------------------------------------------------


@pytest.fixture
def outside(tmp_path):
    """A folder for a manifest, and a file beside it that it must not reach."""
    (tmp_path / "inside").mkdir()
    (tmp_path / "secret.mov").write_bytes(b"x")
    (tmp_path / "inside" / "picture.png").write_bytes(b"x")
    return tmp_path / "inside", tmp_path / "secret.mov"


@pytest.mark.parametrize("form", ["../secret.mov", "{absolute}", "link.mov", "folder/secret.mov", "a/../../secret.mov"])
def test_a_row_cannot_name_a_file_outside_its_manifests_folder(outside, form):
    folder, secret = outside
    (folder / "link.mov").symlink_to(secret)
    (folder / "folder").symlink_to(secret.parent)
    path = write_rows(folder / "clips.jsonl", [raw_row("a", target={"video": form.format(absolute=secret)})])
    codes = [finding.code for finding in read_raw_manifest(path, DatasetOptions()).findings]
    assert codes == [V.PATH_OUTSIDE]


@pytest.mark.parametrize(
    "name", ["\\\\host\\share\\x.mov", "//host/share/x.mov", "file:///etc/passwd", "http://x/y.mov"]
)
def test_a_row_cannot_name_a_file_of_another_machine(outside, name):
    path = write_rows(outside[0] / "clips.jsonl", [raw_row("a", target={"video": name})])
    (finding,) = read_raw_manifest(path, DatasetOptions(allow_outside=True)).findings
    assert finding.code is V.MEDIA_MISSING


@pytest.mark.parametrize("name", ["x" * 300, "loop", "loop/x", "\ud800", "a/" * 3000 + "b"])
def test_a_path_that_cannot_be_looked_up_is_a_finding(outside, name):
    (outside[0] / "loop").symlink_to("loop")
    path = write_rows(outside[0] / "clips.jsonl", [raw_row("a", target={"video": name})])
    (finding,) = read_raw_manifest(path, DatasetOptions()).findings
    assert finding.code in (V.PATH_INVALID, V.PATH_OUTSIDE, V.MEDIA_MISSING)
    json.dumps(finding.to_dict(), ensure_ascii=False).encode()


@pytest.mark.parametrize("entity", ["../../secret", "..", "a/b", "/etc"])
def test_an_entity_cannot_lead_out_of_its_corpus(tmp_path, entity):
    for part in ("csv", "clips_videos/train/v", "clips_audios/train/v"):
        (tmp_path / part).mkdir(parents=True)
    (tmp_path / "csv/train_loader.csv").write_text(f"{entity}\t1\t25\t[0]\n")
    (tmp_path / "csv/train_orig.csv").write_text(f"..,0.0,0.1,0.1,0.2,0.2,NOT_SPEAKING,{entity}\n")
    parsed = AvaCorpus(kind="ava", root=tmp_path, split="train").read()
    assert parsed.rows == ()
    assert [finding.code for finding in parsed.findings] == [V.PATH_INVALID]


@pytest.mark.parametrize("target", ["/etc", "..", "../other/0123456789abcdef", "."])
def test_a_current_link_that_leads_elsewhere_is_no_version(tmp_path, target):
    artifact = Artifact(tmp_path, "asd", "packed_shards", "talks")
    artifact.folder.mkdir(parents=True)
    (artifact.folder.parent / "other" / "0123456789abcdef").mkdir(parents=True)
    artifact.current.symlink_to(target)
    assert current_version(artifact) is None
    with pytest.raises(MuvapError, match="no published version"):
        require_current(artifact)


@pytest.fixture
def packed(tmp_path):
    """A pack published below a data root, and its artifact."""
    artifact = Artifact(tmp_path / "root", "asd", "packed_shards", "talks")
    with staged(artifact) as folder:
        write_small_pack(folder, [[random_track(np.random.default_rng(0), "a")]])
        return artifact, publish(folder, artifact).path


def moved_and_linked(path: Path, place: Path) -> Path:
    """Move what lies at ``path`` to ``place`` and leave a link to it."""
    path.rename(place)
    path.symlink_to(place)
    return path


def verdict(folder: Path) -> str:
    """What ``muvap verify`` says; it has to refuse."""
    done = CliRunner().invoke(main, ["verify", str(folder)])
    assert done.exit_code == 1, done.output
    return done.output


@pytest.mark.parametrize(
    "name", ["shard-000000/faces.npy", "shard-000000/labels.npy", "shard-000000", "index.arrow", "dataset.json"]
)
def test_a_link_in_a_pack_is_followed_by_no_reader(tmp_path, packed, name):
    artifact, folder = packed
    moved_and_linked(folder / name, tmp_path / "elsewhere")
    for place in (folder, artifact.current):
        with pytest.raises(FormatError, match=r"a symbolic link.*required: plain files and folders"):
            PackReader(place)
        assert "a symbolic link" in verdict(place)
    with pytest.raises(MuvapError):
        require_whole(artifact, folder.name)


def test_a_file_replaced_by_a_link_while_a_pack_is_open_is_not_followed(tmp_path, packed):
    reader = PackReader(packed[1])
    moved_and_linked(packed[1] / "shard-000000" / "audio.npy", tmp_path / "elsewhere")
    with pytest.raises(FormatError, match=r"audio\.npy: a symbolic link"):
        reader[0]


def test_a_pipe_in_a_published_folder_is_refused_and_not_waited_for(packed):
    for name in ("shard-000000/index.json", "stray", "index.arrow", "dataset.json"):
        (packed[1] / name).unlink(missing_ok=True)
        os.mkfifo(packed[1] / name)
        with pytest.raises(FormatError, match="a pipe, a socket or a device"):
            PackReader(packed[1])
        assert "a pipe, a socket or a device" in verdict(packed[1])


@pytest.mark.parametrize(
    "place", ["version", "current", "link of a reader to the version", "link of a reader to current"]
)
def test_a_version_replaced_by_a_link_is_no_version(tmp_path, packed, place):
    artifact, folder = packed
    moved_and_linked(folder, tmp_path / "elsewhere")
    mine = tmp_path / "mine"
    mine.symlink_to(artifact.current if place == "link of a reader to current" else folder)
    place = {"version": folder, "current": artifact.current}.get(place, mine)
    with pytest.raises(FormatError, match=r"a symbolic link.*required: plain files and folders"):
        PackReader(place)
    assert "a symbolic link" in verdict(place)
    assert current_version(artifact) is None
    assert [version.version for version in standing_versions(artifact)] == []


def test_publishing_does_not_take_a_link_for_the_version_it_has_the_name_of(tmp_path, packed):
    artifact, folder = packed
    moved_and_linked(folder, tmp_path / "elsewhere")
    with staged(artifact) as again:
        shutil.copytree(tmp_path / "elsewhere", again, dirs_exist_ok=True)
        with pytest.raises(PublishError, match="holds something else than version"):
            publish(again, artifact)


def test_links_above_a_version_and_links_of_a_reader_to_it_are_followed(tmp_path, packed):
    artifact, folder = packed
    (tmp_path / "above").symlink_to(artifact.folder.parent)
    (tmp_path / "mine").symlink_to(folder)
    (tmp_path / "latest").symlink_to(artifact.current)
    for place in (artifact.current, tmp_path / "above" / "talks" / "current", tmp_path / "mine", tmp_path / "latest"):
        assert PackReader(place).path == folder.resolve()
        assert "symbolic link" not in CliRunner().invoke(main, ["verify", str(place)]).output


@pytest.fixture
def dataset(tmp_path):
    """A small published dataset of ref2va."""
    return published(tmp_path / "root", clean_record("a"), clean_record("b"))


@pytest.mark.parametrize(
    "name", ["map_style_cache", "map_style_cache/index.arrow", "dataset.json", "training.yaml", "shard"]
)
def test_a_link_in_a_dataset_is_followed_by_no_reader(tmp_path, dataset, name):
    from muvap_assets.ref2va.dataset import PackedRef2VADataset

    path = next(dataset.glob("bucket=*/*.parquet")) if name == "shard" else dataset / name
    moved_and_linked(path, tmp_path / "elsewhere.parquet")
    with pytest.raises(ValidationError, match="a symbolic link"):
        PackedRef2VADataset(dataset)
    assert "a symbolic link" in verdict(dataset)


@pytest.mark.parametrize(
    "name", ["dataset.json", "map_style_cache/stamps.json", "bucket=32x32-5f/data_00000009.parquet"]
)
def test_a_pipe_in_a_dataset_is_refused_and_not_waited_for(dataset, name):
    (dataset / name).unlink(missing_ok=True)
    os.mkfifo(dataset / name)
    assert "a pipe, a socket or a device" in verdict(dataset)
    with pytest.raises(ValidationError, match="a pipe, a socket or a device"):
        rebuild_index(dataset)


def test_a_dataset_replaced_by_a_link_is_none(tmp_path, dataset):
    from muvap_assets.ref2va.dataset import PackedRef2VADataset

    root = moved_and_linked(dataset, tmp_path / "elsewhere")
    for place in (root, root.parent / "current"):
        with pytest.raises(ValidationError, match="a symbolic link"):
            PackedRef2VADataset(place)
        assert "a symbolic link in the place of a version" in verdict(place)


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("manifest.parquet", asd_files.read_manifest),
        ("provenance.json", asd_files.read_notes),
        ("provenance.json", loudness.read_inputs),
        (loudness.INDEX_FILE, loudness.read_loudness_index),
        ("manifest.parquet", ref2va_files.read_manifest),
        ("report.json", ref2va_files.read_manifest),
        ("rows.json", read_rows),
        ("device.json", read_devices),
    ],
)
def test_a_file_of_an_artifact_that_is_a_link_is_not_read(tmp_path, name, read):
    (tmp_path / "elsewhere").write_text("{}")
    folder = tmp_path / "version"
    folder.mkdir()
    (folder / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FormatError, match=f"{re.escape(name)}: a symbolic link"):
        read(folder)


def test_a_current_that_is_no_link_is_no_version(tmp_path):
    artifact = Artifact(tmp_path, "asd", "packed_shards", "talks")
    artifact.current.mkdir(parents=True)
    assert current_version(artifact) is None


@pytest.mark.parametrize("name", ["../x", "a/b", "..", "/etc", "current", "a\0b", ""])
def test_no_name_of_a_partition_leads_elsewhere(tmp_path, name):
    with pytest.raises(ConfigError, match="not a usable name"):
        Artifact(tmp_path, "asd", "manifest", name)


# --- no claim is believed -----------------------------------------------------------------------------------------------

_MEASURED = """
import json, sys
from pathlib import Path
path = Path(sys.argv[1])
{imports}
def held():
    # Not ru_maxrss, which a process inherits from the one that started it.
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
warm = held()
try:
    told = {call}
except MuvapError as error:
    told = [str(error)]
print(json.dumps([(held() - warm) / 1024, [str(line) for line in told]]))
"""
_READERS = {
    "image": ("from muvap_assets.media.images import read_image", "[read_image(path)]"),
    "jpeg": (
        "import cv2, numpy as np\nfrom muvap_assets.media.faces import decode_jpeg_gray, read_jpeg",
        "[decode_jpeg_gray(read_jpeg(path), np.empty((112, 112), np.uint8), path)]",
    ),
    "sound": ("from muvap_assets.media.audio import probe_audio", "[probe_audio(path, 16_000)]"),
    "track": ("import av\nfrom muvap_assets.media.soundtrack import count_sound", "[count_sound(path)]"),
    "faces": ("from muvap_assets.media.faces import open_npy_faces", "[open_npy_faces(path)]"),
    "video": ("import av\nfrom muvap_assets.media.video import count_video", "[count_video(path)]"),
    "pickle": ("from muvap_assets.ref2va.file_info import read_file_info", "[read_file_info(path)]"),
    "shard": ("from muvap_assets.ref2va.records import read_shard", "read_shard(path)"),
    "datasets": ("from muvap_assets.datasets import load_datasets", "[load_datasets(path)]"),
    "raw": (
        "from muvap_assets.ref2va.contract import DatasetOptions\nfrom muvap_assets.ref2va.raw_manifest import read_raw_manifest",
        "[v.message() for v in read_raw_manifest(path, DatasetOptions()).findings]",
    ),
    "tsv": ("from muvap_assets.asd.corpora.tsv import read_tsv", "[v.message() for v in read_tsv(path).findings]"),
    "rttm": (
        "from muvap_assets.asd.corpora.rttm import read_rttm",
        "[v.message() for v in read_rttm(path).findings]",
    ),
    "predictions": (
        "from muvap_assets.asd.prediction_files import read_ground_truth",
        "[read_ground_truth(path, labels_known=True)]",
    ),
}


def measured(reader: str, path: Path, seconds: float = 60) -> tuple[float, list[str]]:
    """MiB that reading took beyond what its modules do, in a process of its own, and what it told."""
    imports, call = _READERS[reader]
    code = _MEASURED.format(imports=f"from muvap_assets.errors import MuvapError\n{imports}", call=call)
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=seconds, check=False
    )
    assert done.returncode == 0, done.stderr
    taken, told = json.loads(done.stdout.splitlines()[-1])
    return taken, told


def png_of(width: int, height: int) -> bytes:
    """A PNG that declares a size and holds next to nothing."""
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(bytes(1000))), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body)) for name, body in chunks
    )


def jpeg_of(width: int, height: int) -> bytes:
    """A JPEG that declares a size."""
    import cv2

    content = bytearray(cv2.imencode(".jpg", np.zeros((8, 8), np.uint8))[1].tobytes())
    frame = content.index(b"\xff\xc0")
    content[frame + 5 : frame + 9] = struct.pack(">HH", height, width)
    return bytes(content)


def wav_of(samples: int) -> bytes:
    """A WAV that declares a length and holds ten samples."""
    size = min(samples * 2, 0xFFFFFFFF)
    form = struct.pack("<4sI4s4sIHHIIHH", b"RIFF", 0xFFFFFFFF, b"WAVE", b"fmt ", 16, 1, 1, 16_000, 32_000, 2, 16)
    return form + struct.pack("<4sI", b"data", size) + bytes(20)


def npy_of(dtype: str, shape: tuple[int, ...]) -> bytes:
    """A ``.npy`` that declares a shape and holds ten bytes."""
    return npy_header_bytes(np.dtype(dtype), shape) + bytes(10)


def alias_bomb(levels: int = 30) -> str:
    """Each level names the one below it ten times."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, levels)]
    return "\n".join(lines) + "\n"


def merge_bomb(levels: int = 12) -> str:
    """Each level merges the one below it ten times."""
    lines = ["a0: &a0 {x: 1, y: 2}"]
    lines += [f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 10)}]}}" for i in range(1, levels)]
    return "\n".join(lines) + "\n"


HEADER = "sample_id\taudio_path\tvisual_path\tsource_fps\tlabels\tstart_sec\n"


@pytest.mark.parametrize(
    ("reader", "name", "content", "message"),
    [
        ("image", "x.png", png_of(60_000, 60_000), "60000x60000 pixels|exceeds limit"),
        ("image", "x.png", png_of(9_000, 9_000), "does not decode"),
        ("image", "x.eps", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n", "it is no PNG"),
        ("jpeg", "1.jpg", jpeg_of(60_000, 60_000), "60000x60000 pixels, at most"),
        ("sound", "x.wav", wav_of(2**32), "AudioProbe.*frames=10,"),
        ("track", "x.wav", wav_of(2**32), "SoundFacts.*samples=10,"),
        ("sound", "x.npy", npy_of("f4", (10**15,)), "its header promises 4000000000000128"),
        ("faces", "x.npy", npy_of("u1", (10**6, 10**6, 10**3)), "its header promises 1000000000000128"),
        ("datasets", "d.yaml", alias_bomb().encode(), "over 500,000 values"),
        ("datasets", "d.yaml", merge_bomb().encode(), "tag:yaml.org,2002:merge"),
        ("datasets", "d.yaml", b"a: &a [*a]\n", "over 500,000 values"),
        ("datasets", "d.yaml", b"[" * 100_000, "RecursionError|recursion"),
        ("datasets", "d.yaml", b"# " + bytes(5 << 20), "over 4 MiB"),
        ("raw", "c.json", b"[" * 100_000 + b"]" * 100_000, "recursion"),
        ("raw", "c.jsonl", b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "recursion"),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 30 else "",
)
def test_a_file_takes_no_memory_for_what_it_only_claims(tmp_path, reader, name, content, message):
    import re

    path = tmp_path / name
    path.write_bytes(content)
    taken, told = measured(reader, path)
    assert re.search(message, " ".join(told)), told
    assert taken < 150, f"{taken:.0f} MiB"


def sparse(path: Path, size: int, start: bytes = b"", fill: bytes = b"") -> Path:
    """A file of ``size`` bytes after ``start``, of zeros that take no disk, or of ``fill``."""
    with path.open("wb") as stream:
        stream.write(start)
        if fill:
            for _ in range(size // (1 << 20)):
                stream.write(fill * ((1 << 20) // len(fill)))
        else:
            stream.truncate(len(start) + size)
    return path


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x80\x04" + b"]" * 40_000_000 + b"a" * 39_999_999 + b".", "more than 8 tuples and lists"),
        (b"\x80\x04" + b"(" * 4_000_000 + b"t" * 4_000_000 + b".", "more than 1,000,0"),
        (b"\x80\x04](" + b"K\x01" * 2_000_000 + b"e.", "more than 500,0"),
        (b"\x80\x04N" + b"\x94" * 4_000_000 + b".", "more than 500,0"),
    ],
    ids=["nested lists", "nested marks", "numbers", "memo"],
)
def test_a_pickle_takes_no_memory_for_what_no_list_of_shards_holds(tmp_path, content, message):
    (tmp_path / "file_info.pkl").write_bytes(content)
    taken, told = measured("pickle", tmp_path / "file_info.pkl")
    assert message in told[0]
    assert taken < 50, f"{taken:.0f} MiB"


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("kind", [tuple, list])
def test_a_list_of_shards_of_any_protocol_is_read(tmp_path, protocol, kind):
    value = kind((kind(f"/d/bucket=32x32-5f/data_{number:08d}.parquet" for number in range(3000)), kind([1] * 3000)))
    (tmp_path / "file_info.pkl").write_bytes(pickle.dumps(value, protocol))
    assert read_file_info(tmp_path / "file_info.pkl", 3000) == tuple(map(tuple, value))


def test_a_pickle_too_large_for_the_shards_there_are_is_refused_unread(dataset):
    path = dataset / "map_style_cache" / "file_info.pkl"
    sparse(path, 10**12, b"\x80\x04")
    assert "1,000,000,000,002 bytes, over 12,480 for 2 shards" in verdict(dataset)
    with pytest.raises(FormatError, match="1,000,000,000,002 bytes, over 536,870,912"):
        read_file_info(path)


@pytest.mark.parametrize(
    ("reader", "start", "size", "message", "limit"),
    [
        ("raw", b"{", 10**9, "over 512 MiB", 50),
        ("tsv", HEADER.encode() + b"a\t", 10**9, "over 32,000,000 characters without an end", 400),
        ("tsv", HEADER.encode() + b'a\t"', 10**9, "over 32,000,000 characters without an end", 400),
        ("rttm", b"SPEAKER ", 10**9, "over 100,000 characters without an end", 50),
        ("predictions", b"v,0,0,0,1,1,NOT_SPEAKING,v:1\nv,", 10**9, "over 1,000,000 characters without an end", 50),
    ],
)
def test_a_line_of_a_gigabyte_is_refused_by_its_limit(tmp_path, reader, start, size, message, limit):
    taken, told = measured(reader, sparse(tmp_path / "file.jsonl", size, start))
    assert message in " ".join(told), told
    assert taken < limit, f"{taken:.0f} MiB"


def test_a_long_row_of_json_lines_is_refused_and_the_others_are_read(tmp_path):
    path = tmp_path / "clips.jsonl"
    path.write_bytes(b'{"id": 1}\n{"a": "' + b"x" * (40 << 20) + b'"}\n{"id": 2}\n')
    taken, told = measured("raw", path)
    assert any("row 2: over 4 MiB in one row" in line for line in told)
    assert any("row 3" in line for line in told)
    assert taken < 300, f"{taken:.0f} MiB"


def test_an_enormous_field_is_refused_and_costs_one_row(tmp_path):
    path = tmp_path / "train.tsv"
    path.write_text(f"{HEADER}a\tb\tc\t25\t[{'0,' * 9_000_000}0]\t\n" + "b\tb\tc\t25\t[0]\t\n")
    taken, told = measured("tsv", path)
    assert ["field larger than field limit (16000000)" in line for line in told] == [True]
    assert taken < 300, f"{taken:.0f} MiB"


def test_a_shard_that_unpacks_to_a_mountain_is_refused(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    from muvap_assets.ref2va.records import pyarrow_schema_ref2va

    row = dict.fromkeys(pyarrow_schema_ref2va.names)
    row["vae_latent_bytes"] = bytes(128 << 20)
    path = tmp_path / "data_00000000.parquet"
    pq.write_table(pa.Table.from_pylist([row], schema=pyarrow_schema_ref2va), path, compression="zstd")
    del row
    assert path.stat().st_size < 1 << 20
    taken, told = measured("shard", path)
    assert "says it unpacks to 134," in told[0], told
    assert taken < 150, f"{taken:.0f} MiB"


def test_a_video_of_absurd_size_is_refused_by_its_header(tmp_path):
    from media_makers import write_video

    path = write_video(tmp_path / "x.mp4", frames=[np.zeros((6400, 6400, 3), np.uint8)], codec="mpeg4")
    taken, told = measured("video", path)
    assert "frames of 6400x6400; required: a video that ffmpeg decodes, of at most 36000000 pixels" in told[0]
    assert taken < 150, f"{taken:.0f} MiB"


def test_a_pipe_where_a_file_is_named_is_not_waited_for(tmp_path):
    from muvap_assets.media.face_boxes import read_face_boxes

    os.mkfifo(tmp_path / "pipe.csv")
    (finding,) = read_face_boxes(tmp_path / "pipe.csv").findings
    assert "not a regular file" in finding.found and finding.hint == "Check the path and the permissions."
