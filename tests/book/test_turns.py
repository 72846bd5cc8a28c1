"""The notebook of several turns: what it draws is what was sampled, and its exercises notice a
mistake."""

import json
import re
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "ch07"))
import turns  # noqa: E402

from reasoning_from_scratch.config import Sampling  # noqa: E402
from reasoning_from_scratch.fast.engine import FAST  # noqa: E402
from reasoning_from_scratch.files.weights import load_model_and_tokenizer  # noqa: E402
from reasoning_from_scratch.problems import problem_prompt  # noqa: E402
from reasoning_from_scratch.sampling import Rollout, generate  # noqa: E402
from reasoning_from_scratch.tiny.guessing import guess_problem  # noqa: E402

NOTEBOOK = json.loads((ROOT / "ch07" / "ch07_turns.ipynb").read_text(encoding="utf-8"))
CELLS = {cell["id"]: "".join(cell["source"]) for cell in NOTEBOOK["cells"]}


@pytest.fixture(scope="module")
def player():
    return load_model_and_tokenizer("tiny-player")


@pytest.fixture(scope="module")
def sampled(player):
    """Eight games about 23, as a run samples them."""
    model, tokenizer = player
    problem = guess_problem(23)
    sampling = Sampling(96, rollouts=8, environment="guess", max_turn_tokens=4)
    (group,) = generate(
        model,
        [tokenizer.encode(problem_prompt(problem))],
        sampling,
        stop_ids={tokenizer.eos_token_id},
        engine=FAST.equipped(sampling, tokenizer, [problem]),
    )
    return group


# ---- guesses


def test_the_opening_is_as_likely_as_the_sampler_wrote_down(player, sampled):
    model, tokenizer = player
    opening = turns.next_guess(model, tokenizer)
    for rollout in sampled:
        end = rollout.response_ids.index(tokenizer.eos_token_id) + 1
        guess = int(tokenizer.decode(rollout.response_ids[: end - 1]))
        assert sum(rollout.logprobs[:end]) == pytest.approx(
            opening[guess - 1].log().item(), abs=1e-4
        )
    assert 0.99 < opening.sum() <= 1.0001
    assert opening.max() < 2.5 / 64  # no plan


def test_the_next_guess_is_that_of_the_conversation(player, sampled):
    """After the first reply, as the sampler had it before it; what is impossible is unlikely."""
    model, tokenizer = player
    rollout = next(one for one in sampled if one.turns > 1)
    pieces = turns.pieces_of(rollout, tokenizer)
    (first, _), (answer, _), (second, _) = pieces[:3]
    found = turns.next_guess(model, tokenizer, [(int(first), answer.strip("[]"))])
    reply = tokenizer.encode(tokenizer.reply_turn(answer.strip("[]")), chat_wrapped=False)
    begin = rollout.response_ids.index(tokenizer.eos_token_id) + 1 + len(reply)
    end = rollout.response_ids.index(tokenizer.eos_token_id, begin) + 1
    wanted = sum(rollout.logprobs[begin:end])
    assert found[int(second) - 1].log().item() == pytest.approx(wanted, abs=1e-4)
    told = turns.next_guess(model, tokenizer, [(32, "higher"), (48, "lower")])
    assert told[32:47].sum() > 0.97


def test_where_guesses_lie():
    games = [(40, [32, 64, 33]), (5, [1, 64]), (7, [9, 1, 8])]
    assert turns.places_in_range(games) == pytest.approx(
        [31 / 63, 1.0, 0.0, 0.0, 1.0, 8 / 63, 0.0]
    )  # 8 is a guess among seven numbers


# ---- who wrote what


def test_a_talk_marks_what_the_model_wrote(player, sampled):
    tokenizer = player[1]
    for rollout in sampled:
        pieces = turns.pieces_of(rollout, tokenizer)
        assert [drawn for _, drawn in pieces] == [i % 2 == 0 for i in range(len(pieces))]
        assert all((text in ("[higher]", "[lower]")) != drawn for text, drawn in pieces)
        talk = turns.Talk(rollout, tokenizer, "23:")
        assert talk._repr_html_().count("<mark") == rollout.turns
        assert repr(talk).startswith("23: <")
    assert len(turns.draw_mask(sampled[0], tokenizer).axes) == 1


def test_markup_in_a_talk_is_text(player):
    tokenizer = player[1]
    ids = tokenizer.encode("<b>1</b>", chat_wrapped=False)
    assert "<b>1" not in turns.Talk(Rollout(response_ids=ids), tokenizer)._repr_html_()


# ---- stored runs


@pytest.fixture
def stored(tmp_path, monkeypatch):
    monkeypatch.setattr(turns, "HERE", tmp_path)
    names = ["within " + str(k) for k in range(1, 9)]
    keys = ["pay", "kl", "leave out", "seed", "step", "numbers"]
    lines = [",".join([*keys, *names, "middle", "first"])]
    for seed in "01":
        for step, share in ((0, 0.2), (50, 0.5), (100, 0.6 + 0.2 * int(seed))):
            counts = " ".join(["1"] * 63 + [str(step)])
            row = ["in time", "0", "0", seed, str(step), "asked", *[str(share)] * 8, "0.5", counts]
            lines.append(",".join(row))
            lines.append(",".join(["faster", *row[1:]]))
            lines.append(",".join(["in time", "0.05", *row[2:]]))
    (tmp_path / "binary_search.csv").write_text("\n".join(lines) + "\n")
    lines = ["arm,seed,step,answers,right,drawn"]
    for seed, last in (("0", "0.8"), ("1", "0.9")):
        lines += [f"asks,{seed},0,sampled,0.5,nan", f"asks,{seed},60,sampled,{last},20"]
        lines += [f"asks,{seed},60,greedy,1,1"]
    (tmp_path / "asking.csv").write_text("\n".join(lines) + "\n")


# ---- exercises

MISTAKES = {
    1: "class Race:\n"
    "    def __init__(self, problem):\n"
    "        self.last, self.won = 0, False\n"
    "    def reply(self, turn):\n"  # knows no rules
    "        self.won, self.last = turn == '10', self.last + 3\n"
    "        return str(self.last - 1) if self.last < 12 else None\n"
    "    def rewards(self):\n"
    "        return {'correct': float(self.won)}",
    2: "def opening_worth(pay, guess):\n"  # of two bad sides it counts one
    "    return (1 + 2 * min(31, guess - 1)) / 64",
    3: "def show_lucky():\n    return ECHO",
}
NEEDS = {
    1: ["guess-by-hand-code"],
    2: [],
    3: ["three-tokens-policy", "three-tokens-gradient", "unmasked-training"],
}


@pytest.mark.parametrize("number, mistake", MISTAKES.items())
def test_a_mistake_in_an_exercise_is_noticed(number, mistake):
    names: dict = {}
    magic = re.compile(r"^%.*$", re.M)
    sources = [magic.sub("", CELLS["imports"]), *(CELLS[name] for name in NEEDS[number])]
    solution, check = (CELLS[f"exercise-{number}-{part}"] for part in ("solution", "check"))
    for source in (*sources, solution, check):
        exec(source, names)
    with pytest.raises(AssertionError):
        exec(f"{mistake}\n{check}", names)
    plt.close("all")
