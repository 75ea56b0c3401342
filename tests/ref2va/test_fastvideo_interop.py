"""fastvideo's own published reader opens what we publish, and the loader it uses resumes with our samplers.

fastvideo 0.2.1 is installed from the registry into a throw-away folder, without its dependencies but for five small ones that
the import of its reader asks for, and runs in a process of its own. Nothing of it is stubbed or changed: only the ``__init__``
modules of the packages above the reader are not run, for they import the whole inference stack.
"""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from published_rows import LONG, SMALL, WIDE, clean_record, published, sft_record
from skipping import skip_or_fail

from muvap_assets.ref2va.cache import open_index
from muvap_assets.ref2va.records import read_shard
from muvap_assets.ref2va.sampler import Schedule

pytestmark = pytest.mark.interop
REQUIREMENTS = (
    "fastvideo==0.2.1",
    "torchdata==0.11.0",
    "cloudpickle==3.1.3",
    "imageio==2.38.1",
    "einops==0.8.2",
    "remote-pdb==2.1.0",
)
READER = """
import json, sys, types
import numpy as np

root, data, out, rendezvous = sys.argv[1:]
sys.path.insert(0, root)
for name in ("fastvideo", "fastvideo.dataset", "fastvideo.dataset.dataloader"):
    package = types.ModuleType(name)
    package.__path__ = [f"{root}/{name.replace('.', '/')}"]
    sys.modules[name] = package

from fastvideo.dataset.dataloader.schema import pyarrow_schema_t2va
from fastvideo.dataset.parquet_dataset_map_style import LatentsParquetMapStyleDataset
from fastvideo.distributed import maybe_init_distributed_environment_and_model_parallel

maybe_init_distributed_environment_and_model_parallel(1, 1, f"file://{rendezvous}")
dataset = LatentsParquetMapStyleDataset(
    data, batch_size=1, parquet_schema=pyarrow_schema_t2va, text_padding_length=1024, drop_last=False
)
arrays = {"files": np.array(dataset.parquet_files), "lengths": np.array(dataset.lengths)}
for number in range(len(dataset)):
    batch = dataset.__getitems__([number])
    for name in ("vae_latent", "audio_latent", "text_embedding", "text_attention_mask"):
        arrays[f"{number}.{name}"] = batch[name].numpy()
    arrays[f"{number}.info"] = np.array(json.dumps(batch["info_list"][0]))
np.savez(out, **arrays)
"""
STEPS = """
import json, sys, types

root, asked = sys.argv[1], json.loads(sys.argv[2])
sys.path.insert(0, root)
for name in ("fastvideo", "fastvideo.dataset", "fastvideo.dataset.dataloader"):
    package = types.ModuleType(name)
    package.__path__ = [f"{root}/{name.replace('.', '/')}"]
    sys.modules[name] = package

from fastvideo.dataset.parquet_dataset_map_style import DP_SP_BatchSampler

answers = []
for size, world, sp_size in asked:
    ranks = [DP_SP_BatchSampler(1, size, world // sp_size, sp_size, rank, drop_last=False) for rank in range(world)]
    answers.append([len(ranks[0]), sum(len(batch) for sampler in ranks[::sp_size] for batch in sampler) - size])
print(json.dumps(answers))
"""
RESUMED = """
import json, sys

sys.path.append(sys.argv[1])
from torchdata.stateful_dataloader import StatefulDataLoader

from muvap_assets.asd.batch_sampler import FrameBudgetBatchSampler
from muvap_assets.ref2va.sampler import BucketBatchSampler


class Rows:
    version, buckets = "v1", (("a", 13), ("b", 8))

    def __getitem__(self, number):
        return number


def loader(line, workers, epoch):
    data = Rows()
    sampler = BucketBatchSampler(data, batch_size=2) if line else FrameBudgetBatchSampler(range(1, 60), max_batch=4)
    data.__class__.__getitems__ = lambda self, items: list(items)
    loading = StatefulDataLoader(data, batch_sampler=sampler, collate_fn=list, num_workers=workers)
    sampler.set_epoch(epoch)
    return loading


def same(line, workers, taken):
    whole = list(loader(line, 0, 1))
    first = loader(line, workers, 1)
    batches = iter(first)
    given = [next(batches) for _ in range(taken)]
    again = loader(line, workers, 1)
    again.load_state_dict(first.state_dict())
    resumed = list(again)
    finished = loader(line, workers, 1)
    list(finished)
    after = loader(line, workers, 2)
    after.load_state_dict(finished.state_dict())
    return given + resumed == whole and list(after) == list(loader(line, 0, 2)), len(whole)


print(json.dumps([same(line, workers, taken) for line in (0, 1) for workers in (0, 2) for taken in (0, 1, 5)]))
"""


@pytest.fixture(scope="module")
def fastvideo(tmp_path_factory):
    """The folder fastvideo was installed into."""
    folder = tmp_path_factory.mktemp("fastvideo")
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--target", str(folder), "--quiet"]
    done = subprocess.run([*command, *REQUIREMENTS], capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        skip_or_fail(f"fastvideo 0.2.1 cannot be installed here ({done.stderr.strip().splitlines()[-1:]})")
    return folder


def read_by_fastvideo(fastvideo, data, scratch):
    """Everything its reader says of the dataset at ``data``."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "WORLD_SIZE": "1", "RANK": "0", "LOCAL_RANK": "0"}
    command = [sys.executable, "-c", READER, str(fastvideo), str(data), str(scratch / "out.npz"), str(scratch / "meet")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    with np.load(scratch / "out.npz") as arrays:
        return {name: arrays[name] for name in arrays.files}, done.stdout + done.stderr


@pytest.mark.parametrize("format", ["packed", "sft"])
def test_its_reader_takes_our_index_and_reads_our_rows(fastvideo, tmp_path, format):
    records = [
        clean_record("short", tokens=11),
        clean_record("long", tokens=1500),
        clean_record("wide", WIDE, tokens=1024),
        clean_record("later", LONG, tokens=5),
        clean_record("more", SMALL, tokens=1025),
    ]
    folder = published(tmp_path, *(records if format == "packed" else map(sft_record, records)))
    index = open_index(folder, require_existing=True)
    before = (folder / "map_style_cache/file_info.pkl").read_bytes()
    found, log = read_by_fastvideo(fastvideo, folder.parent / "current", tmp_path)
    assert "Successfully loaded cached file info" in log
    assert "Scanning parquet files" not in log
    assert (folder / "map_style_cache/file_info.pkl").read_bytes() == before
    assert found["files"].tolist() == [str(folder.resolve() / row.path) for row in index.rows]
    assert found["lengths"].tolist() == [1] * 5
    for number, row in enumerate(index.rows):
        (record,) = read_shard(folder / row.path)
        assert np.array_equal(found[f"{number}.vae_latent"][0], record.vae_latent)
        assert np.array_equal(found[f"{number}.audio_latent"][0], record.audio_latent)
        kept = min(len(record.text_embedding), 1024)
        text, mask = found[f"{number}.text_embedding"][0], found[f"{number}.text_attention_mask"][0]
        assert np.array_equal(text[:kept], record.text_embedding[:kept])
        assert not text[kept:].any()
        assert mask.tolist() == [1.0] * kept + [0.0] * (1024 - kept)
        info = json.loads(str(found[f"{number}.info"]))
        assert (info["id"], info["caption"], info["num_frames"]) == (
            record.id,
            record.caption,
            record.geometry.num_frames,
        )
        assert (info["width"], info["fps"], info["audio_sample_rate"]) == (record.geometry.width, 24.0, 32_000)


def answer(script, *arguments):
    """What a script prints, run in a process of its own."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "WORLD_SIZE": "1", "RANK": "0", "LOCAL_RANK": "0"}
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_a_buckets_steps_and_repeats_are_those_of_its_sampler(fastvideo):
    asked = [(size, world, sp_size) for size in (8, 9, 16, 23) for world, sp_size in ((1, 1), (2, 1), (4, 2), (8, 1))]
    for (size, world, sp_size), (steps, repeats) in zip(
        asked, answer(STEPS, str(fastvideo), json.dumps(asked)), strict=True
    ):
        schedule = Schedule(bucket_sizes=(size,), groups=world // sp_size)
        assert (schedule.steps, sum(schedule.repeats)) == (steps, repeats)


def test_the_stateful_loader_it_uses_resumes_both_samplers_with_and_without_workers(fastvideo):
    answers = answer(RESUMED, str(fastvideo))
    assert len(answers) == 12
    assert all(same and steps > 6 for same, steps in answers)
