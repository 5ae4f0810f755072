"""Records of rounds, from what was measured to files and back."""

from __future__ import annotations

import json

import pytest

from fedmatch_tf.base.errors import DataError
from fedmatch_tf.runs.records import check_lines, decode, encode, to_line
from tests.runs.test_checkpoint import round_of


def test_a_servers_learning_rate_is_written_where_there_is_one_and_read_back() -> None:
    written = [round_of(0), round_of(1)._replace(server_lr=0.25)]
    read = decode(b"".join(encode(record) for record in written))
    assert read == written
    assert "server_lr" not in to_line(read[0])
    assert to_line(read[1])["server_lr"] == 0.25


def test_records_of_earlier_versions_have_no_learning_rate_of_the_server() -> None:
    fields = json.loads(json.dumps(round_of(0)._asdict()))
    del fields["server_lr"]
    content = json.dumps(fields).encode() + b"\n"
    check_lines(content, 1, 2)
    assert decode(content) == [round_of(0)]
    with pytest.raises(DataError, match=r"round 1.*server_lr"):
        check_lines(json.dumps({**fields, "server_lr": "fast"}).encode(), 1, 2)
