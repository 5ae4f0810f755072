"""Which rows make a batch, and how far training is."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from fedmatch_tf.config import make_config
from fedmatch_tf.data.files import Examples
from fedmatch_tf.data.loader import ClientData
from fedmatch_tf.learners.batches import ClientRound, View, all_slices, cut, minibatches, share_done, slices


def data(labeled: int | None, unlabeled: int) -> ClientData:
    def examples(count: int) -> Examples:
        return Examples(np.zeros((count, 1, 1, 1), np.uint8), np.zeros((count, 2), np.float32))

    return ClientData(0, None if labeled is None else examples(labeled), examples(unlabeled))


def rows(parts: Iterable[slice | None]) -> list[tuple[int, int] | None]:
    return [None if part is None else (part.start, part.stop) for part in parts]


def test_labelled_batches_decide_the_steps_and_unlabelled_examples_are_spread_over_them() -> None:
    config = make_config("lc-biid-c10")
    pairs = cut(config, data(50, 490))  # 50 / 10 = 5 steps; 490 / 5 = 98
    assert rows([labeled for labeled, _ in pairs]) == [(0, 10), (10, 20), (20, 30), (30, 40), (40, 50)]
    assert rows([unlabeled for _, unlabeled in pairs]) == [(0, 98), (98, 196), (196, 294), (294, 392), (392, 490)]
    assert rows([unlabeled for _, unlabeled in cut(config, data(20, 41))]) == [(0, 21), (21, 42)]
    assert rows([unlabeled for _, unlabeled in cut(config, data(3, 41))]) == [(0, 41)]  # at least one step


def test_labels_at_server_takes_whole_unlabelled_batches() -> None:
    config = make_config("ls-biid-c10")
    assert [labeled for labeled, _ in cut(config, data(None, 549))] == [None] * 5  # 5.49 rounds down
    assert len(cut(config, data(None, 551))) == 6
    assert rows([part for _, part in cut(config, data(None, 30))]) == [(0, 100)]


def test_a_given_unlabelled_batch_size_wins_and_labelled_steps_go_on_when_nothing_unlabelled_is_left() -> None:
    lc = make_config("lc-biid-c10", batch_size_unlabeled=30)
    assert rows([part for _, part in cut(lc, data(50, 70))]) == [(0, 30), (30, 60), (60, 90), None, None]
    ls = make_config("ls-biid-c10", batch_size_unlabeled=30)
    assert len(cut(ls, data(None, 90))) == 3


def test_in_proxyfls_profile_every_unlabelled_example_is_in_a_batch_however_many_a_client_holds() -> None:
    config = make_config("lc-bdir-c10", profile="proxyfl")
    for number, steps in ((115, 1), (2520, 10), (8255, 33)):  # clients of Dirichlet 0.1, 256 images in a batch
        parts = [part for _, part in cut(config, data(280, number))]
        seen = np.concatenate([np.arange(number)[part] for part in parts if part is not None])
        assert (len(parts), seen.tolist()) == (steps, list(range(number)))


def test_a_client_with_few_labels_beside_many_images_takes_more_steps_instead_of_a_huge_one() -> None:
    config = make_config("lc-bdir-c10", alpha_labeled=0.1)
    pairs = cut(config, data(20, 1300))
    assert rows([labeled for labeled, _ in pairs]) == [(0, 10), (10, 20), None]
    assert rows([part for _, part in pairs]) == [(0, 500), (500, 1000), (1000, 1300)]
    assert rows([part for _, part in cut(config, data(20, 900))]) == [(0, 450), (450, 900)]
    even = make_config("lc-bdir-c10")  # as the original has it: all labelled sets are equal
    assert rows([part for _, part in cut(even, data(20, 1300))]) == [(0, 650), (650, 1300)]


def test_an_epoch_of_unlabelled_batches_takes_labelled_ones_again_and_again() -> None:
    config = make_config("lc-biid-c10", epoch_of="unlabeled", batch_size_unlabeled=256)
    pairs = cut(config, data(20, 1100))
    assert rows([labeled for labeled, _ in pairs]) == [(0, 10), (10, 20), (0, 10), (10, 20), (0, 10)]
    assert rows([part for _, part in pairs]) == [(0, 256), (256, 512), (512, 768), (768, 1024), (1024, 1100)]
    assert rows([part for _, part in cut(config, data(None, 300))]) == [(0, 256)], "as without labels anyway"


def test_slices_round_half_to_even_as_the_original_does() -> None:
    assert [len(slices(n, 10)) for n in (4, 14, 15, 25, 26, 100)] == [1, 1, 2, 2, 3, 10]


def test_the_share_of_all_training_that_is_done_counts_the_present_round() -> None:
    config = make_config("lc-biid-c10", num_rounds=4)
    assert [float(share_done(config, *when)) for when in ((0, 0.0), (1, 0.5), (3, 1.0))] == [0, 0.375, 1]


def test_the_servers_epoch_sees_all_of_its_labels() -> None:
    assert rows(all_slices(240, 100)) == [(0, 100), (100, 200), (200, 240)]
    assert rows(all_slices(200, 100)) == [(0, 100), (100, 200)]
    assert rows(all_slices(30, 100)) == [(0, 30)]


def test_every_epoch_has_the_same_rows_and_draws_of_its_own() -> None:
    config = make_config("lc-biid-c10", num_rounds=4, num_epochs_client=2)
    x, y = np.arange(27, dtype=np.uint8).reshape(27, 1, 1, 1), np.eye(27, dtype=np.float32)
    client = ClientData(0, Examples(x[:20], y[:20]), Examples(x[20:], y[20:]))
    helper_probs = np.arange(7, dtype=np.float32).reshape(1, 7, 1)
    made = minibatches(config, ClientRound(1, 0, 0.5, [View(client, helper_probs)], lambda x: x))
    batches = list(made.batches)
    assert (made.num_batches, made.num_unlabeled, len(batches)) == (4, 14, 4)  # 20 labels are 2 batches; 7 images
    for batch, labeled, unlabeled in zip(batches, [(0, 10), (10, 20)] * 2, [(20, 24), (24, 27)] * 2):
        assert batch.x_labeled is not None
        assert batch.x_unlabeled is not None
        assert batch.x_labeled.ravel().tolist() == list(range(*labeled))
        assert batch.x_unlabeled.ravel().tolist() == list(range(*unlabeled))
        assert batch.y_unlabeled is not None
        np.testing.assert_array_equal(batch.y_unlabeled, y[slice(*unlabeled)])
        assert batch.helper_probs.ravel().tolist() == [number - 20 for number in range(*unlabeled)]
        assert batch.lr == np.float32(0.5)
    # (1 + 0, 1/4, 2/4, 3/4) of 4 rounds.
    assert [float(batch.share_done) for batch in batches] == [0.25, 0.3125, 0.375, 0.4375]
    assert len({tuple(batch.seed) for batch in batches}) == 4
