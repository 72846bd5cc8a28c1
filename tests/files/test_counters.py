"""How far something is: redrawn where that can be seen, else a line now and then."""

from reasoning_from_scratch.files import counters
from reasoning_from_scratch.files.counters import counter


def counted(monkeypatch, capsys, seconds_each, **options):
    """What is on stderr after ten things that took so long each."""
    now = [0.0]
    monkeypatch.setattr(counters.time, "monotonic", lambda: now[0])
    with counter(10, desc="evaluating", unit="problem", **options) as count:
        for _ in range(10):
            now[0] += seconds_each
            count.update()
    return capsys.readouterr().err


def test_a_pipe_gets_a_line_now_and_then(monkeypatch, capsys):
    assert counted(monkeypatch, capsys, 0.3) == "evaluating: 10 of 10, 3 s\n"
    assert counted(monkeypatch, capsys, 8).splitlines() == [
        "evaluating: 4 of 10, 32 s",
        "evaluating: 8 of 10, 64 s",
        "evaluating: 10 of 10, 80 s",
    ]


def test_a_terminal_gets_a_bar(monkeypatch, capsys):
    monkeypatch.setattr(counters, "interactive", lambda: True)
    shown = counted(monkeypatch, capsys, 0.3)
    assert "10/10" in shown and "\r" in shown


def test_quiet_is_quiet(monkeypatch, capsys):
    for seen in (True, False):
        monkeypatch.setattr(counters, "interactive", lambda seen=seen: seen)
        assert counted(monkeypatch, capsys, 8, quiet=True) == ""


def test_what_was_there_already_is_not_news(capsys):
    with counter(10, 10, "evaluating"):
        pass
    assert capsys.readouterr().err == ""
    with counter(None, 1_000_000, "weights.bin", unit="B") as count:  # a length nobody knows
        count.update(500_000)
    assert capsys.readouterr().err == "weights.bin: 1.5 MB, 0 s\n"
