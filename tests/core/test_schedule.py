"""The learning rate: when it falls, and how far."""

from __future__ import annotations

from fedmatch_tf.core import schedule


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
