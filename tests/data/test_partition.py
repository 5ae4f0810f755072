"""Who holds which example: the original's result index for index, and what must hold for any request."""

from __future__ import annotations

import hashlib
import io
import json
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from fedmatch_tf.base.errors import DataError
from fedmatch_tf.data import files
from fedmatch_tf.data.dealing import PartitionSpec, choose_classes, class_shares, draw_counts
from fedmatch_tf.data.partition import Partition, make_partition
from tests.conftest import ORIGINAL

SPEC = PartitionSpec(
    scenario="lc",
    kind="biid",
    dataset="c10",
    num_clients=3,
    labels_per_class=2,
    num_test=10,
    num_valid=10,
    num_steps=1,
    image_size=32,
    seed=1,
)


def official_problem() -> tuple[np.ndarray, np.ndarray]:
    """The made-up dataset of 3000 images that the original's partitions were recorded on."""
    n = 3000
    i = np.arange(n)
    x = ((np.arange(n * 3072, dtype=np.int64) * 31) % 251).astype(np.uint8).reshape(n, 32, 32, 3)
    x[:, 0, 0, 0], x[:, 0, 0, 1] = i // 256, i % 256
    return x, (i * 7 + i // 13) % 10


def every_index(partition: Partition) -> list[np.ndarray]:
    unlabeled = [part for steps in partition.unlabeled for part in steps]
    return [partition.test, partition.valid, *partition.labeled, *unlabeled]


@pytest.mark.parametrize("task", ["lc-biid-c10", "lc-bimb-c10", "ls-biid-c10", "ls-bimb-c10"])
def test_partitions_equal_the_originals_file_by_file(task: str) -> None:
    expected = json.loads((ORIGINAL / "partitions.json").read_text())[task]
    scenario, kind, _ = task.split("-")
    x, y = official_problem()
    spec = PartitionSpec(scenario, kind, "c10", 10, 5 if scenario == "lc" else 20, 200, 200, 1, 32, seed=1)
    partition = make_partition(y, spec)
    ours = {"test_cifar_10.npy": partition.test, "valid_cifar_10.npy": partition.valid}
    for client, index in enumerate(partition.labeled):
        ours[f"s_cifar_10_{client}.npy" if scenario == "lc" else "s_cifar_10.npy"] = index
    for client, steps in enumerate(partition.unlabeled):
        ours[f"u_cifar_10_{client}.npy"] = steps[0]
    assert ours.keys() == expected.keys()
    for name, index in ours.items():
        record = expected[name]
        assert index.tolist() == record["index"], name
        payload = io.BytesIO(files.encode(name, x[index], y[index], 10))
        stored = np.load(payload, allow_pickle=True).item()  # as the original reads it
        assert stored.keys() == {"x", "y", "labels", "name"}
        assert (stored["x"].dtype, stored["y"].dtype) == (record["x_dtype"], record["y_dtype"])
        assert hashlib.sha256(stored["x"].tobytes()).hexdigest() == record["sha256_x"]
        assert hashlib.sha256(stored["y"].tobytes()).hexdigest() == record["sha256_y"]
        assert stored["labels"].tolist() == record["labels"]
        assert stored["name"] == record["name"]


def test_a_small_partition_is_the_one_worked_out_by_hand() -> None:
    order = list(range(12))
    random.Random(1).shuffle(order)
    assert order == [7, 11, 0, 8, 5, 6, 3, 10, 4, 1, 9, 2]
    pair = [0, 1]
    random.Random(1).shuffle(pair)
    assert pair == [1, 0]
    spec = replace(SPEC, num_clients=2, labels_per_class=1, num_test=2, num_valid=2)
    partition = make_partition(np.arange(12) % 2, spec)
    # The first 8 of the order are for training, then 2 and 2.
    assert partition.test.tolist() == [4, 1]
    assert partition.valid.tolist() == [9, 2]
    # Training examples of class 0: 0 8 6 10, of class 1: 7 11 5 3. Client 0 gets the first of each, client 1 the
    # second; a pair is shuffled to its reverse.
    assert [index.tolist() for index in partition.labeled] == [[7, 0], [11, 8]]
    # Left are 6 10 and 5 3: one slice of one example of each class for each client.
    assert [steps[0].tolist() for steps in partition.unlabeled] == [[5, 6], [3, 10]]


def test_streaming_cuts_a_clients_data_into_equal_consecutive_parts() -> None:
    labels = np.arange(1000) % 10
    batch = make_partition(labels, replace(SPEC, kind="bimb"))
    streamed = make_partition(labels, replace(SPEC, kind="simb", num_steps=4))
    for (whole,), steps in zip(batch.unlabeled, streamed.unlabeled):
        size = len(whole) // 4
        assert [len(part) for part in steps] == [size] * 4
        assert np.concatenate(steps).tolist() == whole[: 4 * size].tolist()


def test_class_shares_rotate_and_keep_their_shape_for_any_number_of_classes() -> None:
    np.testing.assert_allclose(class_shares(10, 0), [0.50, 0.15, 0.03, 0.03, 0.03, 0.02, 0.03, 0.03, 0.03, 0.15])
    np.testing.assert_allclose(class_shares(10, 13), [0.03, 0.03, 0.15, 0.50, 0.15, 0.03, 0.03, 0.03, 0.02, 0.03])
    np.testing.assert_allclose(class_shares(3, 0), [0.625, 0.1875, 0.1875])
    np.testing.assert_allclose(class_shares(3, 2), [0.1875, 0.1875, 0.625])
    np.testing.assert_allclose(class_shares(2, 1), [0.375, 0.625])
    np.testing.assert_allclose(class_shares(7, 1), [0.15, 0.5, 0.15, 0.05, 0.05, 0.05, 0.05])


def test_imbalanced_clients_hold_mostly_their_own_class() -> None:
    partition = make_partition(np.arange(20000) % 10, replace(SPEC, kind="bimb", num_clients=10))
    for client, (index,) in enumerate(partition.unlabeled[:5]):  # the last ones find classes used up
        counts = np.bincount(index % 10, minlength=10)
        assert counts.argmax() == client
        assert abs(counts[client] / len(index) - 0.5) < 0.05


@pytest.mark.parametrize(("kind", "expected"), [("biid", [5] * 10), ("bimb", None)])
def test_a_limit_keeps_the_beginning_of_what_a_client_would_get(kind: str, expected: list[int] | None) -> None:
    labels = np.arange(2000) % 10
    whole, limited = (
        make_partition(labels, replace(SPEC, kind=kind, unlabeled_per_client=limit)) for limit in (None, 50)
    )
    for client, (index,) in enumerate(limited.unlabeled):
        assert len(index) == 50
        if expected is not None:
            assert np.bincount(index % 10).tolist() == expected
        assert client > 0 or set(index) <= set(whole.unlabeled[0][0])
    for before, after in zip(whole.labeled, limited.labeled):
        np.testing.assert_array_equal(before, after)
    with pytest.raises(DataError, match=r"a larger --unlabeled-per-client"):
        make_partition(labels, replace(SPEC, unlabeled_per_client=9))  # of ten classes: none of each


@st.composite
def requests(draw: st.DrawFn) -> tuple[np.ndarray, PartitionSpec]:
    """A request that can be met, but for streaming clients that find all classes used up."""
    num_classes = draw(st.integers(2, 12))
    kind = draw(st.sampled_from(["biid", "bimb", "simb"]))
    spec = PartitionSpec(
        scenario=draw(st.sampled_from(["lc", "ls"])),
        kind=kind,
        dataset="own",
        num_clients=draw(st.integers(1, 12)),
        labels_per_class=draw(st.integers(1, 4)),
        num_test=draw(st.integers(1, 30)),
        num_valid=draw(st.integers(1, 30)),
        num_steps=draw(st.integers(1, 4)) if kind == "simb" else 1,
        image_size=32,
        seed=draw(st.integers(0, 2**32 - 1)),
    )
    holders = spec.num_clients if spec.scenario == "lc" else 1
    enough = spec.num_test + spec.num_valid + spec.labels_per_class * holders + spec.num_clients * spec.num_steps
    sizes = [enough + draw(st.integers(0, 40)) for _ in range(num_classes)]
    labels = np.repeat(np.arange(num_classes), sizes)
    return np.random.default_rng(draw(st.integers(0, 1000))).permutation(labels), spec


def partition_of(labels: np.ndarray, spec: PartitionSpec, groups: np.ndarray | None = None) -> Partition:
    try:
        return make_partition(labels, spec, groups)
    except DataError as error:
        if "was dealt" in str(error):  # the only thing that may fail in these requests
            reject()
        raise


@settings(max_examples=150, deadline=None)
@given(requests())
def test_any_partition_is_disjoint_balanced_conserving_and_repeatable(
    request: tuple[np.ndarray, PartitionSpec],
) -> None:
    labels, spec = request
    partition = partition_of(labels, spec)
    everything = np.concatenate(every_index(partition))
    assert len(np.unique(everything)) == len(everything), "an example is in two places"
    assert set(everything) <= set(range(len(labels)))
    assert (len(partition.test), len(partition.valid)) == (spec.num_test, spec.num_valid)

    num_classes = labels.max() + 1
    assert len(partition.labeled) == (spec.num_clients if spec.scenario == "lc" else 1)
    for index in partition.labeled:
        assert np.bincount(labels[index], minlength=num_classes).tolist() == [spec.labels_per_class] * num_classes

    assert len(partition.unlabeled) == spec.num_clients
    assert {len(steps) for steps in partition.unlabeled} == {spec.num_steps}
    held = [np.concatenate(steps) for steps in partition.unlabeled]
    train = len(labels) - spec.num_test - spec.num_valid
    rest = train - sum(len(index) for index in partition.labeled)
    if spec.kind == "biid":  # every class is dealt out but for what doesn't divide among the clients
        assert rest - sum(map(len, held)) < spec.num_clients * num_classes
        assert len({tuple(np.bincount(labels[index], minlength=num_classes)) for index in held}) == 1
    else:
        assert all(len(index) <= rest // spec.num_clients for index in held)

    for first, second in zip(every_index(partition), every_index(make_partition(labels, spec))):
        assert first.tolist() == second.tolist()


@settings(max_examples=60, deadline=None)
@given(requests(), st.randoms(use_true_random=False))
def test_copies_of_an_image_stay_on_one_side_of_the_split(
    request: tuple[np.ndarray, PartitionSpec], random: Any
) -> None:
    labels, spec = request
    groups = np.arange(len(labels))
    for _ in range(len(labels) // 6):  # pairs and a few larger groups, across classes as well
        groups[random.randrange(len(labels))] = groups[random.randrange(len(labels))]
    partition = partition_of(labels, spec, groups)
    trained = np.concatenate(every_index(partition)[2:])
    sides = [set(groups[partition.test]), set(groups[partition.valid]), set(groups[trained])]
    assert len(set.union(*sides)) == sum(len(side) for side in sides)
    assert (len(partition.test), len(partition.valid)) == (spec.num_test, spec.num_valid)


def test_a_split_without_copies_is_the_same_with_and_without_groups() -> None:
    labels = np.arange(500) % 10
    plain, grouped = make_partition(labels, SPEC), make_partition(labels, SPEC, groups=np.arange(500))
    assert plain.test.tolist() == grouped.test.tolist()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_test": 60, "num_valid": 45}, "100 examples - 60 test - 45 validation = -5"),
        ({"labels_per_class": 5}, "3 clients x 5 labels = 15 training examples of every class; class 0 has"),
        ({"labels_per_class": 30, "scenario": "ls"}, "expected 30 labels = 30 training examples of every class"),
        (
            {"labels_per_class": 1, "num_clients": 7, "num_test": 1, "num_valid": 1},
            "7 clients x 1 steps = 7 unlabelled",
        ),
        ({"num_clients": 60, "scenario": "ls", "kind": "bimb", "labels_per_class": 3}, "60 clients x 1"),
        ({"num_steps": 30, "kind": "simb", "labels_per_class": 1}, "3 clients x 30 steps = 90 unlabelled"),
        ({"kind": "bdir", "alpha": 0.01, "num_clients": 8, "labels_per_class": 0}, "left somebody with fewer than 10"),
        ({"kind": "bdir", "alpha": 1.0, "num_clients": 60, "scenario": "ls"}, "60 clients x 1 steps x 10 = 600 unlab"),
        (
            {"kind": "bshard", "classes_per_client": 11, "labels_per_class": 1},
            "expected at most the 10 classes, received 11",
        ),
        ({"labeled_fraction": 0.01}, r"0.01 x \d+ of class 0 are 0. Use a larger share"),
        ({"labeled_clients": 9}, "expected 1 to 3 of the clients, received 9"),
    ],
)
def test_impossible_requests_say_the_arithmetic(change: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        make_partition(np.arange(100) % 10, replace(SPEC, **change))


def test_a_group_of_copies_that_fits_no_side_is_refused() -> None:
    groups = np.zeros(100, int)
    with pytest.raises(DataError, match="100 copies of one image"):
        make_partition(np.arange(100) % 10, SPEC, groups)


def test_a_streaming_client_that_finds_its_classes_used_up_is_refused_by_name() -> None:
    spec = replace(SPEC, kind="simb", num_clients=12, labels_per_class=1, num_steps=4)
    with pytest.raises(DataError, match=r"4 steps of client \d+, which was dealt \d"):
        make_partition(np.r_[np.arange(200) % 10], spec)


@pytest.mark.parametrize("seed", [1, 7, 4294967295])
def test_imbalanced_classes_are_drawn_from_the_legacy_generator_of_the_seed(seed: int) -> None:
    spec = replace(SPEC, kind="bimb", scenario="ls", num_clients=10, labels_per_class=1, seed=seed)
    partition = make_partition(np.arange(3020) % 10, spec)
    shares = [0.50, 0.15, 0.03, 0.03, 0.03, 0.02, 0.03, 0.03, 0.03, 0.15]
    wanted = (3020 - 20 - 10) // 10
    drawn = np.random.RandomState(seed).choice(10, wanted, p=shares)
    assert (
        np.bincount(partition.unlabeled[0][0] % 10, minlength=10).tolist() == np.bincount(drawn, minlength=10).tolist()
    )


@st.composite
def field_requests(draw: st.DrawFn) -> tuple[np.ndarray, PartitionSpec]:
    """Dirichlet, a few classes per client, a labelled share, labels at some clients: requests that can be met."""
    num_classes, num_clients = draw(st.integers(2, 12)), draw(st.integers(1, 8))
    scenario, kind = (
        draw(st.sampled_from(["lc", "ls"])),
        draw(st.sampled_from(["biid", "bimb", "simb", "bdir", "bshard"])),
    )
    at_clients = scenario == "lc"
    spec = PartitionSpec(
        scenario=scenario,
        kind=kind,
        dataset="own",
        num_clients=num_clients,
        labels_per_class=draw(st.integers(1, 4)),
        num_test=10,
        num_valid=10,
        num_steps=3 if kind == "simb" else 1,
        image_size=32,
        seed=draw(st.integers(0, 2**32 - 1)),
        alpha=draw(st.sampled_from([0.5, 1.0, 50.0])) if kind == "bdir" else None,
        alpha_labeled=draw(st.sampled_from([None, 0.5, 5.0])) if at_clients else None,
        classes_per_client=draw(st.integers(1, num_classes)) if kind == "bshard" else None,
        labeled_fraction=draw(st.sampled_from([None, 0.1, 0.5])),
        labeled_clients=draw(st.sampled_from([None, 1, num_clients])) if at_clients else None,
    )
    sizes = [200 + draw(st.integers(0, 60)) for _ in range(num_classes)]
    return np.random.default_rng(draw(st.integers(0, 1000))).permutation(np.repeat(np.arange(num_classes), sizes)), spec


@settings(max_examples=150, deadline=None)
@given(field_requests())
def test_the_fields_partitions_lose_nobody_and_give_what_was_asked_for(
    request: tuple[np.ndarray, PartitionSpec],
) -> None:
    labels, spec = request
    partition = make_partition(labels, spec)
    everything = np.concatenate(every_index(partition))
    assert len(np.unique(everything)) == len(everything), "an example is in two places"
    num_classes = labels.max() + 1
    counts = [np.bincount(labels[index], minlength=num_classes) for index in partition.labeled]
    holders = [count for count in counts if count.sum()]
    assert len(holders) == (1 if spec.scenario == "ls" else spec.labeled_clients or spec.num_clients)
    outside = np.concatenate([partition.test, partition.valid])
    left = np.bincount(np.delete(labels, outside), minlength=num_classes)  # training examples of each class
    wanted = spec.labels_per_class * len(holders) * np.ones(num_classes)
    if spec.labeled_fraction is not None:
        wanted = np.floor(spec.labeled_fraction * left)
    if spec.alpha_labeled is None:  # everybody has the same, give or take one of a class
        assert np.ptp(holders, axis=0).max() <= 1
        assert np.ptp(np.sum(holders, axis=1)) <= num_classes
    assert np.sum(holders, axis=0).tolist() == wanted.tolist()
    assert {len(steps) for steps in partition.unlabeled} == {spec.num_steps}
    held = [np.bincount(labels[np.concatenate(steps)], minlength=num_classes) for steps in partition.unlabeled]
    if spec.kind == "bdir":  # all of it is dealt
        assert np.sum([*held, *counts], axis=0).tolist() == left.tolist()
        assert min(count.sum() for count in held) >= 10
    if spec.kind == "bshard":
        assert {np.count_nonzero(count) for count in held} == {spec.classes_per_client}
        by_class = np.count_nonzero(held, axis=0)
        assert by_class.max() - by_class.min() <= 1
        for label in range(num_classes):
            assert len({count[label] for count in held if count[label]}) <= 1, "holders of a class share it evenly"
    for first, second in zip(every_index(partition), every_index(make_partition(labels, spec))):
        assert first.tolist() == second.tolist()


@pytest.mark.parametrize("alpha", [0.1, 1.0, 10.0])
def test_shares_have_the_moments_of_a_dirichlet_distribution_for_every_client(alpha: float) -> None:
    """Of Dirichlet(alpha, ..., alpha) over K: mean 1 / K, variance (1 / K)(1 - 1 / K) / (K alpha + 1)."""
    holders, total, draws = 5, 100_000, 4000
    rng = np.random.default_rng(3)
    shares = np.array([draw_counts(rng, np.array([total]), holders, alpha, 0, "--alpha")[:, 0] for _ in range(draws)])
    shares = shares / total
    variance = (1 / holders) * (1 - 1 / holders) / (holders * alpha + 1)
    error = 5 * np.sqrt(variance / draws)
    assert np.abs(shares.mean(axis=0) - 1 / holders).max() < error, "whatever a client's number, its mean is the same"
    np.testing.assert_allclose(shares.var(axis=0), variance, rtol=0.15)


def test_every_seed_and_every_class_has_a_draw_of_its_own() -> None:
    """Over 400 seeds: of Dirichlet(1) over 4 clients, mean 1 / 4, variance (1 / 4)(3 / 4) / 5; classes independent."""
    labels = np.arange(4000) % 4
    spec = replace(SPEC, scenario="ls", kind="bdir", alpha=1.0, num_clients=4, num_test=0, num_valid=0)
    shares = []
    for seed in range(400):
        made = make_partition(labels, replace(spec, seed=seed))
        held = np.array([np.bincount(labels[index], minlength=4) for (index,) in made.unlabeled])
        shares.append(held / held.sum(axis=0))
    drawn = np.array(shares)  # [seeds, clients, classes]
    variance = 0.25 * 0.75 / 5
    assert np.abs(drawn.mean(axis=0) - 0.25).max() < 5 * np.sqrt(variance / 400)
    np.testing.assert_allclose(drawn.var(axis=0), variance, rtol=0.35)
    for client in range(4):
        between = np.corrcoef(drawn[:, client].T)[~np.eye(4, dtype=bool)]
        assert np.abs(between).max() < 5 / np.sqrt(400)


def test_who_holds_labels_and_which_classes_depends_on_the_seed() -> None:
    labels = np.arange(2000) % 10

    def holders(seed: int) -> tuple[bool, ...]:
        made = make_partition(labels, replace(SPEC, num_clients=8, labeled_clients=4, labels_per_class=1, seed=seed))
        return tuple(len(index) > 0 for index in made.labeled)

    def classes(seed: int) -> tuple[tuple[int, ...], ...]:
        made = make_partition(labels, replace(SPEC, kind="bshard", classes_per_client=2, num_clients=8, seed=seed))
        return tuple(tuple(np.unique(labels[index])) for (index,) in made.unlabeled)

    def labelled(seed: int) -> tuple[int, ...]:
        spec = replace(SPEC, num_clients=4, alpha_labeled=0.5, labeled_fraction=0.2, seed=seed)
        return tuple(len(index) for index in make_partition(labels, spec).labeled)

    for drawn in (holders, classes, labelled):
        assert len({drawn(seed) for seed in range(8)}) > 4


def test_classes_of_clients_in_a_case_worked_out_by_hand() -> None:
    """Three classes, two each: whoever begins a new order of classes takes none that he has."""
    for seed in range(50):
        chosen = choose_classes(np.random.default_rng(seed), num_classes=3, num_clients=6, number=2)
        assert all(len(set(classes)) == 2 for classes in chosen.tolist())
        assert np.bincount(chosen.ravel()).tolist() == [4, 4, 4]


def test_a_labelled_share_that_does_not_divide_is_dealt_to_the_last_example() -> None:
    labels = np.arange(1080) % 10
    partition = make_partition(labels, replace(SPEC, labeled_fraction=0.1))  # about 106 of each class remain
    left = np.bincount(np.delete(labels, np.concatenate([partition.test, partition.valid])))
    assert (left // 10 % SPEC.num_clients).any(), "so that there is a remainder"
    held = np.array([np.bincount(labels[index], minlength=10) for index in partition.labeled])
    assert held.sum(axis=0).tolist() == (left // 10).tolist()
    assert np.ptp(held, axis=0).max() == 1


@given(
    num_own=st.integers(1, 60),
    num_valid=st.integers(1, 30),
    seed=st.integers(0, 2**32 - 1),
    copies=st.lists(st.tuples(st.integers(0, 399), st.integers(0, 399)), max_size=20),
)
@settings(max_examples=50, deadline=None)
def test_a_datasets_own_test_set_stays_its_test_set(
    num_own: int, num_valid: int, seed: int, copies: list[tuple[int, int]]
) -> None:
    labels = np.arange(400) % 4
    groups = np.arange(400)
    for one, other in copies:
        groups[one] = groups[other]
    spec = replace(SPEC, num_clients=5, labels_per_class=2, num_test=0, num_valid=num_valid, seed=seed)
    spec = replace(spec, test_split="source")
    made = make_partition(labels, spec, groups, num_own)
    assert made.test.tolist() == list(range(400 - num_own, 400))
    assert len(made.valid) == num_valid
    others = np.concatenate([made.valid, *made.labeled, *(part for steps in made.unlabeled for part in steps)])
    assert len(np.unique(others)) == len(others)
    assert not set(groups[others]) & set(groups[made.test]), "no copy of a test image is trained on"


def test_a_dataset_without_a_test_set_has_none_to_keep() -> None:
    with pytest.raises(DataError, match="expected a dataset that has a test set of its own"):
        make_partition(np.arange(400) % 4, replace(SPEC, test_split="source"))
