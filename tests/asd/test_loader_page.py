"""The training examples of docs/asd.md, run as they stand."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from loader_packs import random_track, write_small_pack

PAGE = Path(__file__).parents[2] / "docs" / "asd.md"


class ToyModel(torch.nn.Module):
    """[B, T * 640] and [B, T, H, W] to [B, T, 6]."""

    def __init__(self, pixels):
        super().__init__()
        self.layer = torch.nn.Linear(640 + pixels, 6)

    def forward(self, audio, faces):
        return self.layer(torch.cat([audio.unflatten(1, (-1, 640)), faces.flatten(2)], dim=2))


@pytest.fixture
def example(tmp_path, monkeypatch):
    """The first example as it was run on a pack where the demo's would be, and the source of the second."""
    rng = np.random.default_rng(0)
    tracks = [random_track(rng, f"t{i}", "25", 30 + i) for i in range(12)]
    write_small_pack(tmp_path / "data/asd/packed_shards/demo_train/current", [tracks])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    training = PAGE.read_text(encoding="utf-8").split("## Training")[1].split("\n## ")[0]
    plain, lightning = re.findall(r"```python\n(.*?)```", training, re.DOTALL)
    torch.manual_seed(0)
    namespace = {"model": ToyModel(6)}
    before = [parameter.detach().clone() for parameter in namespace["model"].parameters()]
    exec(compile(plain, "asd.md", "exec"), namespace)
    return SimpleNamespace(before=before, namespace=namespace, lightning=lightning)


def test_the_plain_example_trains_and_says_where_it_stands(example):
    after = list(example.namespace["model"].parameters())
    assert all(not one.equal(other) for one, other in zip(example.before, after, strict=True))
    assert torch.isfinite(example.namespace["loss"])
    state = example.namespace["checkpoint"]["loader"]
    assert (state["epoch"], state["consumed"]) == (1, [[0, len(example.namespace["dataset"].lengths(1))]])


def test_the_lightning_example_trains_for_two_epochs(example):
    exec(compile(example.lightning, "asd.md", "exec"), example.namespace)
    training = example.namespace["Training"](ToyModel(6))
    loader, optimizer, seen = training.train_dataloader(), training.configure_optimizers(), []
    for training.current_epoch in range(2):
        training.on_train_epoch_start()
        for index, batch in enumerate(loader):
            loss = training.training_step(batch, index)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen.append((training.current_epoch, float(loss.detach())))
    assert {epoch for epoch, _ in seen} == {0, 1}
    assert np.isfinite([loss for _, loss in seen]).all()
