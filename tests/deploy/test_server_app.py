"""The ServerApp from its flags to its run: which data it takes, what it refuses, and how it goes on.

Needs flwr (requirements/flower.txt); the nodes are in this process, and nobody has a network.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT

pytest.importorskip("flwr", reason="flwr is not installed (requirements/flower.txt)")
sys.path.insert(0, str(ROOT / "deploy" / "flower"))

from fedmatch_flower import backend, client_app, server_app
from flwr.app import Context, RecordDict

from fedmatch_tf.base.errors import DataError
from fedmatch_tf.federation.tasks import ClientTask
from tests.deploy.memory_grid import MemoryGrid, Node
from tests.deploy.test_own_data import write_images
from tests.stand_in import StandIn

Serve = Callable[[str], Path]


class OfTwoClasses(StandIn):
    """Clients are known by as many numbers as there are classes."""

    def run(self, task: Any) -> Any:
        result = super().run(task)
        return result._replace(embedding=result.embedding[:2]) if isinstance(task, ClientTask) else result


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Serve:
    """Runs the app with flags, for two hosts with folders of images; the newest run's folder comes back."""
    for client in range(2):
        host = tmp_path / f"host{client}"
        write_images(host / "labeled" / "ill", 2, 10)
        write_images(host / "labeled" / "well", 2, 20)
        write_images(host / "unlabeled", 4, 100)
        write_images(host / "valid" / "well", 2, 30)
    write_images(tmp_path / "server" / "test" / "ill", 3, 50)
    write_images(tmp_path / "server" / "test" / "well", 3, 60)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name, value in {"POLL": 0.0, "LOOK": -1.0, "PAUSE": 0.0}.items():
        monkeypatch.setattr(backend, name, value)
    for module in (client_app, server_app):
        monkeypatch.setattr(module, "make_worker", lambda config, **given: OfTwoClasses(config))
    monkeypatch.setattr(client_app, "_watch", lambda seconds: nullcontext())
    monkeypatch.setattr(server_app, "keep_memory", lambda: None)

    def run(flags: str) -> Path:
        hosts = {10 + client: {"folder": str(tmp_path / f"host{client}"), "client": client} for client in range(2)}
        grid = MemoryGrid({node: Node(node, config) for node, config in hosts.items()})
        given = {"flags": flags, "min-clients": 2, "time-limit": 60.0, "join-time": 60.0}
        server_app.main(grid, Context(1, 1, {}, RecordDict(), given))
        return max((tmp_path / "outputs" / "logs").iterdir())

    return run


FLAGS = "--source server --num-clients 2 --num-rounds 1 --task"


def settings(run: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((run / "config.json").read_text())["settings"]
    return found


def shares_of_test(run: Path) -> list[int]:
    """The test images by class, in the partitions that the run's config names."""
    config = settings(run)
    manifest = json.loads((Path(str(config["dataset_path"])) / str(config["task"]) / "manifest.json").read_text())
    (counts,) = (file["class_counts"] for file in manifest["files"].values() if file["role"] == "test")
    return list(counts)


def test_a_server_whose_images_have_changed_takes_the_new_ones_and_an_earlier_run_its_own(
    serve: Serve, tmp_path: Path
) -> None:
    first = serve(f"{FLAGS} lc-biid-own")
    assert shares_of_test(first) == [3, 3]
    (tmp_path / "server" / "test" / "ill" / "0.png").unlink()
    second = serve(f"{FLAGS} lc-biid-own")
    assert shares_of_test(second) == [2, 3]
    serve(f"--resume {first} --num-rounds 2")
    assert len((first / "rounds.jsonl").read_text().splitlines()) == 2
    assert shares_of_test(first) == [3, 3]


def test_a_run_that_goes_on_trains_all_clients_at_a_time_on_the_partitions_that_it_began_with(serve: Serve) -> None:
    run = serve(f"{FLAGS} lc-biid-own")
    serve(f"--resume {run} --num-rounds 2 --workers 1")
    assert settings(run)["workers"] == 2
    folder = Path(str(settings(run)["dataset_path"]))
    manifest = folder / "lc-biid-own" / "manifest.json"
    manifest.write_text(manifest.read_text() + "\n")
    with pytest.raises(DataError, match="expected the partitions that the run began with"):
        serve(f"--resume {run} --num-rounds 3")
    shutil.rmtree(folder)
    with pytest.raises(DataError, match="expected a folder of partitions, found none"):
        serve(f"--resume {run} --num-rounds 3")


@pytest.mark.parametrize("more", ["lc-biid-own --lr-schedule cosine", "lc-biid-own --keep-best", "ls-biid-own"])
def test_a_server_that_validates_needs_validation_images(serve: Serve, tmp_path: Path, more: str) -> None:
    write_images(tmp_path / "server" / "labeled" / "ill", 1, 70)
    with pytest.raises(DataError, match="expected validation data at the server"):
        serve(f"{FLAGS} {more}")
    assert not (tmp_path / "outputs").exists()
    write_images(tmp_path / "server" / "valid" / "ill", 1, 80)
    assert (serve(f"{FLAGS} {more}") / "confusion.json").exists()
