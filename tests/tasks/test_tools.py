"""Classes whose methods are tools: nothing of this project is imported in them."""

import pytest
from toy import toy_config, toy_model, toy_problems, toy_tokenizer, train

from reasoning_from_scratch.chat_templates import rendered
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.problems import Problem
from reasoning_from_scratch.tasks.environments.conversation import as_shown, environment_of
from reasoning_from_scratch.text import read_lines
from reasoning_from_scratch.tokenizer import ModelTokenizer

SHOP = '''
import asyncio

class Shop:
    """Written to the contract alone."""

    def reset(self, answer, **row) -> str | None:
        self.sold, self.answer = 0, answer
        return "buy some tea"

    async def buy(self, item: str, count: int = 1) -> str:
        """Buys something.

        Args:
            item: What to buy.
            count (int): How many.
        """
        await asyncio.sleep(0)
        self.sold += count
        return f"{count} x {item}"

    def fail(self) -> str:
        """Raises."""
        raise ValueError("out of order")

    async def get_reward(self) -> float:
        return float(self.sold > 0)


class Silent:
    def reset(self):
        pass

    def wait(self) -> None:
        """Does nothing."""


class Neither:
    pass


class NoTools:
    def reset(self):
        pass


class NoHint:
    def reset(self):
        pass

    def buy(self, item):
        """Buys something."""


class NoWords:
    def reset(self):
        pass

    def buy(self, item: str):
        pass


class Wavering:
    told = 0

    def reset(self):
        Wavering.told += 1
        return f"number {Wavering.told}"

    def wait(self) -> None:
        """Does nothing."""
'''
PROBLEM = Problem("one", "How much is tea?", "3")


def call(name, arguments="{}"):
    return f'<tool_call>{{"name": "{name}", "arguments": {arguments}}}</tool_call>'


@pytest.fixture
def shop(tmp_path):
    path = tmp_path / "shop.py"
    path.write_text(SHOP)
    return path


def test_a_call_is_answered_and_the_object_pays(shop):
    talk = environment_of(f"{shop}:Shop")(PROBLEM)
    assert talk.rewards() == {"correct": 0.0}
    said = talk.reply("Well. " + call("buy", '{"item": "tea"}') + call("buy", '{"item": "x"}'))
    assert said == (
        "<tool_response>\n1 x tea\n</tool_response>\n<tool_response>\n1 x x\n</tool_response>"
    )
    assert talk.reply("It is done.") is None
    assert talk.rewards() == {"correct": 1.0}


@pytest.mark.parametrize(
    ("turn", "why"),
    [
        ("<tool_call>{buy</tool_call>", "not JSON"),
        ("<tool_call>[1]</tool_call>", "a call is"),
        (call("buy", "[]"), "a call is"),
        (call("reset"), "there is no tool 'reset'; there is buy, fail"),
        ('<tool_call>{"name": ["buy"]}</tool_call>', "there is no tool"),
        (call("buy"), "missing a required argument: 'item'"),
        (call("buy", '{"item": "x", "price": 2}'), "unexpected keyword argument 'price'"),
        (call("buy", '{"item": "x", "count": "two"}'), "TypeError"),
        (call("fail"), "ValueError: out of order"),
        ("<tool_call>" + "[" * 100_000, "error"),
    ],
)
def test_a_wrong_call_is_answered_with_what_is_wrong(shop, turn, why):
    said = environment_of(f"{shop}:Shop")(PROBLEM).reply(turn)
    assert said.startswith("<tool_response>\nerror: ") and why in said


def test_without_get_reward_the_grader_judges_the_last_turn(shop):
    for answer, paid in (("\\boxed{3}", 1.0), ("\\boxed{4}", 0.0)):
        talk = environment_of(f"{shop}:Silent")(PROBLEM)
        assert "None" in talk.reply(call("wait"))
        assert talk.reply(answer) is None
        assert talk.rewards() == {"correct": paid}


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("Neither", "neither reply and rewards, nor reset"),
        ("NoTools", "no public method"),
        ("NoHint", "no type hint for item"),
        ("NoWords", "without a docstring"),
    ],
)
def test_a_class_that_is_none_says_what_is_missing(shop, tmp_path, name, why):
    with pytest.raises(UserError, match=why):
        as_shown(f"{shop}:{name}", [PROBLEM], toy_tokenizer(tmp_path))


def test_a_task_that_is_another_one_each_time_is_refused(shop, tmp_path):
    kind = f"{shop}:Wavering"
    (shown,) = as_shown(kind, [PROBLEM], toy_tokenizer(tmp_path))
    with pytest.raises(Exception, match="another task"):
        environment_of(kind)(shown)


def test_without_a_template_the_tools_stand_in_the_prompt(shop, tmp_path):
    (shown,) = as_shown(f"{shop}:Shop", [PROBLEM], toy_tokenizer(tmp_path))
    assert "buy(item, count): Buys something." in shown.prompt
    assert "Question:\nHow much is tea?\nbuy some tea\n\nAnswer:" in shown.prompt


def test_qwen3s_template_has_its_own_form(shop, tmp_path):
    tokenizer = toy_tokenizer(tmp_path)
    tokenizer.use_chat_template(True)
    (shown,) = as_shown(f"{shop}:Shop", [PROBLEM], tokenizer)
    assert "Buys" not in shown.prompt
    text = tokenizer.wrap_chat(shown.prompt)
    assert text.startswith("<|im_start|>system\n# Tools") and '"name": "buy"' in text
    assert '"item": {"type": "string", "description": "What to buy."}' in text
    assert '"count": {"type": "integer", "description": "How many."}' in text


def test_a_folders_template_is_given_the_tools(shop, tmp_path):
    toy_tokenizer(tmp_path)
    turns = "{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}"
    for template, shows in (("{{ tools | tojson if tools }}" + turns, True), (turns, False)):
        tokenizer = ModelTokenizer(
            tmp_path / "tokenizer-base.json", "<|im_end|>", chat_template=template
        )
        tokenizer.use_chat_template(True)
        (shown,) = as_shown(f"{shop}:Shop", [PROBLEM], tokenizer)
        assert ("buy(item" in shown.prompt) is not shows
        assert bool(tokenizer.tools) is shows
        wanted = rendered(
            template,
            [{"role": "user", "content": "Hi"}],
            {},
            tools=tokenizer.tools or None,
        )
        assert tokenizer.wrap_chat("Hi") == wanted


@pytest.mark.parametrize("kind", ["Calculator", "Search", "Shop", "Silent"])
def test_three_steps(shop, tmp_path, kind):
    file = shop if kind in ("Shop", "Silent") else "ch07/my_tools.py"
    config = toy_config(
        tmp_path / "run", steps=3, environment=f"{file}:{kind}", max_turn_tokens=2, max_turns=2
    )
    train(config, toy_model(), toy_tokenizer(tmp_path), toy_problems())
    rows = read_lines(tmp_path / "run" / "metrics.jsonl")
    assert len(rows) >= 3
    assert all(row.get("env/all/reward_failed", 0) == 0 for row in rows)
