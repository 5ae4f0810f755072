"""manifest.json: what a folder of partitions holds, how it was made, and the checksum of every file."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Optional

from fedmatch_tf.base import typed, untrusted
from fedmatch_tf.base.errors import DataError, short
from fedmatch_tf.data.dealing import KINDS, PartitionSpec

NAME = "manifest.json"
VERSION = 1


@dataclass(frozen=True)
class FileRecord:
    """One partition file."""

    role: str  # test, valid, labeled or unlabeled
    client: Optional[int]  # None: nobody's, or the server's
    step: Optional[int]  # None: not streaming
    num_examples: int
    class_counts: tuple[int, ...]
    sha256: str


@dataclass(frozen=True)
class SourceRecord:
    """Where the images came from."""

    origin: str
    num_examples: int
    checksum: str
    official: Optional[bool]
    skipped: Optional[tuple[str, ...]] = None  # images that could not be read and were left out


@dataclass(frozen=True)
class Manifest:
    """A folder of partitions."""

    spec: PartitionSpec
    source: SourceRecord
    class_names: tuple[str, ...]
    image_shape: tuple[int, ...]
    unused: int  # training examples that nobody got
    files: dict[str, FileRecord]

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)


def to_json(manifest: Manifest) -> str:
    """The manifest's text."""
    spec = {name: value for name, value in asdict(manifest.spec).items() if value is not None}
    seed, source = spec.pop("seed"), asdict(manifest.source)
    if not source["skipped"]:
        del source["skipped"]
    content = {
        "version": VERSION,
        "task": manifest.spec.task,
        "seed": seed,
        "settings": spec,
        "source": source,
        "class_names": manifest.class_names,
        "image_shape": manifest.image_shape,
        "unused": manifest.unused,
        "files": {name: asdict(record) for name, record in manifest.files.items()},
    }
    return json.dumps(content, indent=1) + "\n"


def describe(manifest: Manifest) -> str:
    """A few lines for people: who holds how much."""
    spec, source = manifest.spec, manifest.source

    def sizes(role: str) -> str:
        counts = [record.num_examples for record in manifest.files.values() if record.role == role]
        low, high = min(counts), max(counts)
        return f"{low:,}" if low == high else f"{low:,} to {high:,}"

    owner = "each client" if spec.scenario == "lc" else "the server"
    if spec.labeled_clients is not None:
        owner = f"each of {spec.labeled_clients} clients"
    labels = f"{spec.labels_per_class} of each class"
    if spec.labeled_fraction is not None:
        labels = f"{100 * spec.labeled_fraction:g} % of each class in all"
    if spec.alpha_labeled is not None:
        average = "" if spec.labeled_fraction is not None else " on average"
        labels += f"{average}, dealt by Dirichlet({spec.alpha_labeled:g})"
    dealt = "" if spec.alpha is None else f", dealt by Dirichlet({spec.alpha:g})"
    dealt += "" if spec.classes_per_client is None else f", of {spec.classes_per_client} classes"
    steps = f" and step ({spec.num_steps} steps)" if KINDS[spec.kind].streams else ""
    shape = "x".join(str(size) for size in manifest.image_shape)
    what = f"vectors of {shape}" if len(manifest.image_shape) == 1 else f"images {shape}"
    return "\n".join(
        (
            f"{spec.task}, seed {spec.seed}",
            f"  source      {source.origin}: {source.num_examples:,} {what}, {manifest.num_classes} classes",
            f"  clients     {spec.num_clients}",
            f"  labelled    {sizes('labeled')} for {owner}, {labels}",
            f"  unlabelled  {sizes('unlabeled')} for each client{steps}{dealt}",
            f"  valid, test {sizes('valid')}, {sizes('test')}",
            f"  left out    {manifest.unused:,}",
        )
    )


def note_on_skipped(names: Sequence[str]) -> str:
    """How many images could not be read, and which (twenty of them); empty if all could."""
    more = f" and {len(names) - 20:,} more" if len(names) > 20 else ""
    return f"{len(names):,} images that can't be read are left out: {', '.join(names[:20])}{more}" if names else ""


def read_manifest(folder: Path) -> Manifest:
    """The folder's manifest; DataError if it is damaged."""
    return read_both(folder)[0]


def read_both(folder: Path) -> tuple[Manifest, str]:
    """(the folder's manifest, its checksum: of the same reading)."""
    path = folder / NAME
    try:
        payload = untrusted.read_bytes(path, untrusted.MOST_TEXT)
        content = json.loads(payload)
        if content["version"] != VERSION:
            raise DataError(f"expected version {VERSION}, received {short(content['version'])}")
        values = {name: content[name] for name in ("source", "class_names", "image_shape", "unused", "files")}
        spec = {**content["settings"], "seed": content["seed"]}
        manifest: Manifest = typed.read(Manifest, "manifest", {**values, "spec": spec})
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise DataError(f"{path}: damaged, or not a manifest ({type(error).__name__}: {error}). {REMAKE}") from error
    return manifest, hashlib.sha256(payload).hexdigest()


REMAKE = "Make the partitions again with --work-type gen_data --force"
