"""Text that is made to break or to stall the detector: each case is decided, in time that grows with its length."""

from __future__ import annotations

import base64
import time

import pytest
from builders import ATTACK, COMMAND, TASK, trace
from icml26_plugin_causaltrace import CausalTrace
from icml26_plugin_causaltrace.index import Value
from icml26_plugin_causaltrace.text import MAX_MARKS, decoded, normalise, segments, stem, stems, visible

DETECTOR = CausalTrace()
N = 40_000


@pytest.mark.parametrize(
    "text",
    [
        "1." + "0" * N + "x",
        "a" * N,
        "1" * N,
        "a" + "\u0316\u0300" * (N // 2),
        "1,111" * N,
        "." + ")" * N,
        ">" + " " * N,
        "-a" * N + "/",
        ":'" * N,
        "-" * N + "a" * N,
        "&#" + "1" * N + ";",
        "&#x" + "f" * N + ";",
        "%2" * N,
        "\\\n " * N,
    ],
    ids=lambda text: ascii(text[:12]),
)
def test_no_text_costs_more_than_its_length(text):
    start = time.process_time()
    DETECTOR.analyze(trace(text, ("read_file", {"path": text}, text), ("send_money", {"recipient": text}, "sent")))
    # The quadratic forms of the patterns take far longer already at this length.
    assert time.process_time() - start < 4.0


def test_trailing_zeros_go_and_nothing_else():
    assert normalise("9.50 and 9.00, 1.0.0, v2.10 0.050x") == "9.5 and 9, 1.0.0, v2.10 0.050x"


def test_identifiers_hold_letters_and_digits_or_signs():
    exact = {raw: Value.of(raw).exact for raw in ("de123456", "12345a", "a@bc", "x_yyyy", "a.bcd", "hello", "123456")}
    assert exact == {"de123456": True, "12345a": True, "a@bc": True, "x_yyyy": True, "a.bcd": True} | {
        "hello": False,
        "123456": False,
    }


def test_runs_of_marks_are_cut_and_real_words_are_not():
    assert visible("cafe\u0301") == "caf\u00e9"
    assert len(visible("x" + "\u0316" * 500)) == 1 + MAX_MARKS


@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode], ids=["plain", "url-safe"])
@pytest.mark.parametrize("goal", [COMMAND, COMMAND.replace(" with", "\nwith"), COMMAND + " \u00ff\u00ff?>~ \u00ff"])
def test_encoded_commands_are_read(encode, goal):
    piece = encode(goal.encode()).decode()
    assert goal in list(decoded(f"see {piece} .")) and segments(piece)
    hidden = trace(TASK, ("read_file", {"path": "a"}, f"Data: {piece}\nEnd."), ("send_money", ATTACK, "sent"))
    assert DETECTOR.analyze(hidden).is_attack


def test_overlong_words_are_not_stemmed():
    assert stem("payments") == "payment" and stems("payments") == {"payment"} and stems("s" * 65) == {"s" * 65}
