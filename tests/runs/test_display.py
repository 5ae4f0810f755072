"""What a run shows while it goes on."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from fedmatch_tf.config import make_config
from fedmatch_tf.runs.display import RoundDisplay, in_words
from tests.results.made_up_runs import record


def shown(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().err.splitlines()


def test_a_round_is_a_line_with_costs_in_per_cent(capsys: pytest.CaptureFixture[str]) -> None:
    with RoundDisplay(make_config("lc-biid-c10", num_rounds=3), quiet=False) as display:
        display.on_round(record(0, 0.5))
        display.on_round(record(1, 0.25))
    first, second = shown(capsys)
    assert "round 1/3" in first
    assert "S2C 200 %" in first
    assert "C2S  50 %" in first
    assert "step" not in first
    assert "test acc 25.00 %  highest 50.00 %" in second


def test_streaming_tells_its_step_and_a_resumed_run_what_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    config = make_config("lc-simb-digits", num_rounds=20)
    with RoundDisplay(config, False, [record(number, 0.5) for number in range(5)]) as display:
        display.on_round(record(5, 0.5, task_step=2))
        display.on_round(record(6, 0.5, task_step=3))
    first, second = shown(capsys)
    assert "round 6/20  step 3/10" in first
    assert "round 7/20  step 4/10" in second


def test_the_first_round_which_compiles_does_not_count_in_the_estimate(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, 0.0, 100.0, 110.0, 120.0])  # made, entered, then the ends of three rounds
    monkeypatch.setattr("fedmatch_tf.runs.display.time.monotonic", lambda: next(clock))
    with RoundDisplay(make_config("lc-biid-c10", num_rounds=62), quiet=False) as display:
        for number in range(3):
            display.on_round(record(number, 0.5))
    first, second, third = shown(capsys)
    assert first.endswith(f"left {61 * 100 // 3600}:{61 * 100 % 3600 // 60:02}:{61 * 100 % 60:02}")
    assert second.endswith("left 10:00")
    assert third.endswith("left 9:50")


def test_a_pipe_gets_a_line_a_tenth_of_a_round_and_at_most_one_every_ten_seconds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = [0.0]
    monkeypatch.setattr("fedmatch_tf.runs.display.time.monotonic", lambda: seconds[0])
    config = make_config("lc-biid-c10", num_rounds=3, num_clients=50, frac_clients=1.0)

    def told(display: RoundDisplay, pace: float) -> list[str]:
        for _ in range(50):
            seconds[0] += pace
            display.client_done()
        lines = shown(capsys)
        display.on_round(record(len(display._accuracies), 0.5))
        shown(capsys)
        return lines

    with RoundDisplay(config, quiet=False) as display:
        slow, faster, fast = told(display, 4.0), told(display, 1.0), told(display, 0.1)
    assert len(slow) == 9
    assert (slow[0], slow[-1]) == ("round 1/3: 5 of 50 clients, 0:20", "round 1/3: 45 of 50 clients, 3:00")
    assert faster == [f"round 2/3: {number} of 50 clients, 0:{number}" for number in (10, 20, 30, 40)]
    assert fast == []


def test_a_quiet_run_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with RoundDisplay(make_config("lc-biid-c10", num_rounds=2), quiet=True) as display:
        display.on_round(record(0, 0.5))
    assert shown(capsys) == []


def test_the_live_table_counts_the_clients_of_the_present_round() -> None:
    def table(display: Any) -> str:
        console = Console(file=io.StringIO(), width=120)
        console.print(display._table())
        return str(console.file.getvalue())  # type: ignore[attr-defined]

    display = RoundDisplay(make_config("lc-biid-c10", num_rounds=3), quiet=True)
    assert "5 of 100 clients per round" in table(display)
    assert "0/5 clients" in table(display)
    for _ in range(3):
        display.client_done()
    assert "3/5 clients" in table(display)
    display.on_round(record(0, 0.5))
    assert "0/5 clients" in table(display)
    assert "chosen on test data" in table(display)
    streaming = RoundDisplay(make_config("lc-simb-digits", num_rounds=20), quiet=True)
    assert "1/10" in table(streaming)
    for number in range(3):
        streaming.on_round(record(number, 0.5))
    assert "2/10" in table(streaming), "rounds 3 and 4 are of the second step"


@pytest.mark.parametrize(
    ("accuracies", "told"),
    [
        ([0.42, 0.42, 0.42], True),
        ([0.42, 0.42], False),
        ([0.42, 0.42, 0.41], False),
        ([0.43, 0.43, 0.43], False),
        ([0.42, 0.58, 0.42], True),
        ([0.1, 0.42, 0.42, 0.42, 0.42], True),
    ],
)
def test_an_accuracy_that_is_a_class_share_round_after_round_is_told_once(
    accuracies: list[float], told: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    display = RoundDisplay(make_config("lc-biid-c10", num_rounds=100), quiet=True)
    display.know_classes({"cat": 0.42, "dog": 0.58})
    for number, accuracy in enumerate(accuracies):
        display.on_round(record(number, accuracy))
    notes = [text for text in shown(capsys) if "seems to predict one class for nearly every image" in text]
    assert len(notes) == told


@pytest.mark.parametrize(
    ("seconds", "words"), [(40.2, "40 s"), (119, "2 min"), (1500, "25 min"), (15600, "4 h 20 min"), (3599, "1 h 0 min")]
)
def test_times_in_words(seconds: float, words: str) -> None:
    assert in_words(seconds) == words
