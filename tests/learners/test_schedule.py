"""The learning rate: when it falls, and how far."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmatch_tf.learners import schedule
from fedmatch_tf.learners.schedule import Visit


def test_lr_falls_after_patience_losses_that_are_not_lower() -> None:
    state = schedule.start(0.9, patience=2)
    lrs = []
    for loss in (5.0, 5.0, 4.0, 4.5, 4.0, 6.0, 6.0, 3.0, 3.5):
        state = schedule.advance(state, loss, patience=2, factor=3, lr_min=0.0)
        lrs.append(round(state.lr, 6))
    #        best  1 bad  best  1 bad  2 bad: falls  1 bad  2 bad: falls  best  1 bad
    assert lrs == [0.9, 0.9, 0.9, 0.9, 0.3, 0.3, 0.1, 0.1, 0.1]
    assert state.lowest == 3.0


def test_lr_never_falls_below_its_floor_and_nan_counts_as_not_lower() -> None:
    state = schedule.start(1.0, patience=1)
    for _ in range(5):
        state = schedule.advance(state, float("nan"), patience=1, factor=10, lr_min=0.05)
    assert state.lr == 0.05


@given(st.lists(st.floats(0.0, 10.0), max_size=30), st.integers(1, 5))
def test_lr_falls_once_for_every_patience_losses_in_a_row_that_are_not_lower(
    losses: list[float], patience: int
) -> None:
    state = schedule.start(1.0, patience)
    for loss in losses:
        state = schedule.advance(state, loss, patience, factor=2.0, lr_min=0.0)
    falls, since, lowest = 0, 0, float("inf")
    for loss in losses:
        since = 0 if loss < lowest else since + 1
        lowest = min(lowest, loss)
        falls += since > 0 and since % patience == 0
    assert state.lr == 0.5**falls
    assert state.lowest == lowest


def test_rates_by_the_round_fall_from_the_initial_one_towards_nothing() -> None:
    for name, expected in (("cosine", [1, 0.5 + 0.5**1.5, 0.5, 0.5 - 0.5**1.5]), ("linear", [1, 0.75, 0.5, 0.25])):
        assert [schedule.BY_ROUND[name](done / 4) for done in range(4)] == pytest.approx(expected)


def test_a_device_has_the_rate_that_the_last_newcomer_or_the_last_drop_gave_it() -> None:
    # Two devices; the initial rate is 0.9.
    rates: tuple[float, ...] = (0.9, 0.9)
    rounds = [
        ([Visit(0, True, None), Visit(1, True, None)], (0.9, 0.9)),  # two newcomers
        ([Visit(0, False, 0.3), Visit(1, False, None)], (0.3, 0.9)),  # a drop slows down whoever comes next to device 0
        ([Visit(0, False, None), Visit(1, False, 0.1)], (0.3, 0.1)),  # somebody else's own rate has fallen to 0.1
        ([Visit(1, False, 0.3), Visit(0, True, None)], (0.9, 0.3)),  # a newcomer; a drop from 0.9 makes device 1 faster
        ([Visit(0, True, 0.3), Visit(0, False, None)], (0.3, 0.3)),  # both on device 0
        ([Visit(0, False, 0.1), Visit(0, True, None)], (0.9, 0.3)),  # in this order the newcomer has the last word
    ]
    for visits, expected in rounds:
        rates = schedule.device_rates(rates, visits, lr=0.9)
        assert rates == expected
