"""Which rows make a batch, and what a step's outcome must satisfy."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from fedmatch_tf.config import make_config
from fedmatch_tf.data.files import Examples
from fedmatch_tf.data.loader import ClientData
from fedmatch_tf.federation.batches import all_slices, batches, check_finite, share_done, slices
from fedmatch_tf.federation.tasks import Step, TrainingError


def data(labeled: int | None, unlabeled: int) -> ClientData:
    def examples(count: int) -> Examples:
        return Examples(np.zeros((count, 1, 1, 1), np.uint8), np.zeros((count, 2), np.float32))

    return ClientData(0, None if labeled is None else examples(labeled), examples(unlabeled))


def rows(parts: Iterable[slice | None]) -> list[tuple[int, int] | None]:
    return [None if part is None else (part.start, part.stop) for part in parts]


def test_labelled_batches_decide_the_steps_and_unlabelled_examples_are_spread_over_them() -> None:
    config = make_config("lc-biid-c10")
    pairs = batches(config, data(50, 490))  # 50 / 10 = 5 steps; 490 / 5 = 98
    assert rows([labeled for labeled, _ in pairs]) == [(0, 10), (10, 20), (20, 30), (30, 40), (40, 50)]
    assert rows([unlabeled for _, unlabeled in pairs]) == [(0, 98), (98, 196), (196, 294), (294, 392), (392, 490)]
    assert rows([unlabeled for _, unlabeled in batches(config, data(20, 41))]) == [(0, 21), (21, 42)]
    assert rows([unlabeled for _, unlabeled in batches(config, data(3, 41))]) == [(0, 41)]  # at least one step


def test_labels_at_server_takes_whole_unlabelled_batches() -> None:
    config = make_config("ls-biid-c10")
    assert [labeled for labeled, _ in batches(config, data(None, 549))] == [None] * 5  # 5.49 rounds down
    assert len(batches(config, data(None, 551))) == 6
    assert rows([part for _, part in batches(config, data(None, 30))]) == [(0, 100)]


def test_a_given_unlabelled_batch_size_wins_and_labelled_steps_go_on_when_nothing_unlabelled_is_left() -> None:
    lc = make_config("lc-biid-c10", batch_size_unlabeled=30)
    assert rows([part for _, part in batches(lc, data(50, 70))]) == [(0, 30), (30, 60), (60, 90), None, None]
    ls = make_config("ls-biid-c10", batch_size_unlabeled=30)
    assert len(batches(ls, data(None, 90))) == 3


def test_in_proxyfls_profile_every_unlabelled_example_is_in_a_batch_however_many_a_client_holds() -> None:
    config = make_config("lc-bdir-c10", profile="proxyfl")
    for number in (115, 2520, 8255):  # clients of Dirichlet 0.1 with 280 labels: 28 steps
        parts = [part for _, part in batches(config, data(280, number))]
        seen = np.concatenate([np.arange(number)[part] for part in parts if part is not None])
        assert (len(parts), seen.tolist()) == (28, list(range(number)))


def test_a_client_with_few_labels_beside_many_images_takes_more_steps_instead_of_a_huge_one() -> None:
    config = make_config("lc-bdir-c10", profile="proxyfl", alpha_labeled=0.1)
    pairs = batches(config, data(20, 1300))
    assert rows([labeled for labeled, _ in pairs]) == [(0, 10), (10, 20), None]
    assert rows([part for _, part in pairs]) == [(0, 500), (500, 1000), (1000, 1300)]
    assert rows([part for _, part in batches(config, data(20, 900))]) == [(0, 450), (450, 900)]
    even = make_config("lc-bdir-c10", profile="proxyfl")  # as the original has it: all labelled sets are equal
    assert rows([part for _, part in batches(even, data(20, 1300))]) == [(0, 650), (650, 1300)]


def test_a_client_without_a_confident_example_has_no_batch() -> None:
    assert batches(make_config("ls-biid-c10", model="semifl"), data(None, 0), chosen=True) == []


def test_every_example_that_a_learner_chose_is_in_a_batch() -> None:
    config = make_config("ls-biid-c10", model="semifl")
    assert rows([part for _, part in batches(config, data(None, 149), chosen=True)]) == [(0, 100), (100, 149)]
    assert rows([part for _, part in batches(config, data(None, 149))]) == [(0, 100)]  # as the original rounds


def test_slices_round_half_to_even_as_the_original_does() -> None:
    assert [len(slices(n, 10)) for n in (4, 14, 15, 25, 26, 100)] == [1, 1, 2, 2, 3, 10]


def test_a_loss_that_is_not_a_number_is_named_by_place() -> None:
    steps = [Step("s", 1.0), Step("u", float("nan"))]
    with pytest.raises(TrainingError, match=r"received nan in round 3, client 7, step 1 \(unsupervised\)"):
        check_finite(steps, "round 3, client 7")


def test_the_share_of_all_training_that_is_done_counts_the_present_round() -> None:
    config = make_config("lc-biid-c10", num_rounds=4)
    assert [float(share_done(config, *when)) for when in ((0, 0.0), (1, 0.5), (3, 1.0))] == [0, 0.375, 1]


def test_the_servers_epoch_sees_all_of_its_labels() -> None:
    assert rows(all_slices(240, 100)) == [(0, 100), (100, 200), (200, 240)]
    assert rows(all_slices(200, 100)) == [(0, 100), (100, 200)]
    assert rows(all_slices(30, 100)) == [(0, 30)]
