"""Classes whose methods are tools: as TRL has them, with nothing of this project imported."""

import hashlib
import json
from typing import Literal

import pytest
import torch
import torch.nn.functional as F
from my_tools import Calculator
from tokenizers import AddedToken
from toy import toy_config, toy_model, toy_problems, toy_tokenizer, train
from transformers.utils import get_json_schema

from reasoning_from_scratch import Sampling
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files.weights import save_hf_folder
from reasoning_from_scratch.problems import Problem, problem_prompt
from reasoning_from_scratch.rollouts import make_batch, sample_groups
from reasoning_from_scratch.text import read_lines
from reasoning_from_scratch.tokenizer import NO_ARGUMENTS, ModelTokenizer, Qwen3Tokenizer
from rfs import evaluate, load_problems
from rfs.commands.cli import main
from rfs.engine import FAST
from rfs.tasks.environments.conversation import environment_factory
from rfs.tasks.environments.tool_schema import argument_error, tool_schema
from rfs.tasks.environments.tools import tool_environment_factory
from rfs.tasks.own_task import function_from_file, run_file
from tests.conftest import build_tokenizer

SHOP = '''
import asyncio
from typing import Literal, Optional


class Shop:
    """Written to the contract alone."""

    made = 0
    rows = []

    def __init__(self):
        Shop.made += 1

    async def reset(self, **row) -> str | None:
        Shop.rows.append(row)
        self.sold, self.wanted = 0, int(row.get("wanted", 1))
        return " Buy some tea."

    async def buy(self, item: str, count: int = 1, price: float = 1.0,
                  how: Literal["cash", "card"] = "cash", sizes: Optional[list[int]] = None) -> str:
        """Buys something,
        if it is there.

        Args:
            item: What to buy,
                in a word.
            count (int): How many.
            price: At most.
            how: To pay.
            sizes: If there are some.

        Returns:
            What was bought.
        """
        await asyncio.sleep(0.001)
        self.sold += count
        return f"{count} x {item}"

    def fail(self) -> str:
        """Raises."""
        raise ValueError("out of order")

    def long(self) -> str:
        """Says much."""
        return "a\\ud800" * 10_000

    def _own(self):
        pass

    async def get_reward(self) -> float:
        return float(self.sold >= self.wanted)


class Silent:
    def reset(self):
        pass

    def wait(self) -> None:
        """Does nothing."""


class Wavering(Silent):
    told = 0

    def reset(self):
        Wavering.told += 1
        return f" Number {Wavering.told}"


class Endless(Silent):
    def reset(self):
        return "tea " * 1000


def a_shop(items=3):
    return Shop()


class Neither:
    pass


class NoTools:
    def reset(self):
        pass


class NoHint(NoTools):
    def buy(self, item):
        """Buys something."""


class NoWords(NoTools):
    def buy(self, item: str):
        pass


class NoStart(Silent):
    def __init__(self, address):
        pass


class NoRow(Silent):
    def reset(self, address):
        pass


class NoText(Silent):
    def reset(self):
        return 3
'''
PROBLEM = Problem("one", "How much is tea?", "3")


@pytest.fixture
def shop(tmp_path):
    path = tmp_path / "shop.py"
    path.write_text(SHOP)
    return path


def call(name, arguments="{}"):
    return f'<tool_call>{{"name": "{name}", "arguments": {arguments}}}</tool_call>'


# ---- a call and its answer


def test_calls_are_answered_and_the_object_pays(shop):
    talk = environment_factory(f"{shop}:Shop")(PROBLEM)
    said = talk.reply("Well. " + call("buy", '{"item": "tea"}') + call("buy", '{"item": "x"}'))
    assert said == [("buy", "1 x tea"), ("buy", "1 x x")]
    assert talk.reply("It is done.") is None
    assert talk.rewards() == {"correct": 1.0}
    assert environment_factory(f"{shop}:Shop")(PROBLEM).rewards() == {"correct": 0.0}


@pytest.mark.parametrize(
    ("turn", "why"),
    [
        ("<tool_call>{buy</tool_call>", "the call is not JSON"),
        ("<tool_call>[1]</tool_call>", "a call is written as"),
        (call("buy", "[]"), "a call is written as"),
        ('<tool_call>{"name": ["buy"]}</tool_call>', "a call is written as"),
        (call("reset"), "there is no tool 'reset'; there is buy, fail, long"),
        (call("_own"), "there is no tool '_own'"),
        (call("buy"), "buy: the argument 'item' is missing"),
        (call("buy", '{"item": "x", "cost": 2}'), "there is no argument 'cost'; there is item"),
        (call("fail", '{"item": "x"}'), "fail: there is no argument 'item'; there is none"),
        (call("buy", '{"item": 2}'), "item is to be string, not 2"),
        (call("buy", '{"item": "x", "count": "two"}'), "count is to be integer, not 'two'"),
        (call("buy", '{"item": "x", "count": true}'), "count is to be integer, not True"),
        (call("buy", '{"item": "x", "how": "free"}'), "how is to be 'cash' or 'card', not 'free'"),
        (call("buy", '{"item": "x", "sizes": [1, "b"]}'), "sizes is to be array of integer, not"),
        (call("buy", '{"item": null}'), "item is to be string, not None"),
        (call("fail"), "ValueError: out of order"),
        ("<tool_call>" + "[" * 100_000, "the call is not JSON"),
    ],
)
def test_a_wrong_call_is_answered_with_what_is_wrong(shop, turn, why):
    ((_, said),) = environment_factory(f"{shop}:Shop")(PROBLEM).reply(turn)
    assert said.startswith("error: ") and why in said


def test_other_calls_are_right(shop):
    talk = environment_factory(f"{shop}:Shop")(PROBLEM)
    given = '{"item": "x", "price": 2, "sizes": null, "how": "card"}'
    assert talk.reply(call("buy", given)) == [("buy", "1 x x")]
    ((_, long),) = talk.reply(call("long"))
    assert long.startswith("a?a?") and long.endswith("(cut off)") and len(long) < 8_100
    thought = f"<think>{call('buy')}</think>"
    assert talk.reply(thought) is None  # it has only thought of calling
    assert talk.reply(thought + call("fail")) is not None
    assert talk.reply(f"<think>{call('buy')}") is None


def test_without_get_reward_the_grader_judges_the_last_turn(shop):
    for answer, paid in (("\\boxed{3}", 1.0), ("\\boxed{4}", 0.0), ("none", 0.0)):
        talk = environment_factory(f"{shop}:Silent")(PROBLEM)
        assert talk.reply("\\boxed{3}" + call("wait")) == [("wait", "None")]
        assert talk.reply(answer) is None
        assert talk.rewards() == {"correct": paid}


def test_reset_gets_the_columns_of_the_row(shop, tmp_path):
    rows = [{"problem": "How much?", "answer": "3", "wanted": 2, "shelf": {"tea": [1]}}]
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    (problem,) = load_problems(str(tmp_path / "rows.json"))
    talk = environment_factory(f"{shop}:Shop")(problem)
    given = function_from_file(f"{shop}:Shop").rows[-1]
    assert given.items() >= rows[0].items()
    assert given["prompt"] == [{"role": "user", "content": "How much?"}]
    talk.reply(call("buy", '{"item": "x"}'))
    assert talk.rewards() == {"correct": 0.0}


def test_objects_are_used_again(shop):
    kind = environment_factory(f"{shop}:Shop")
    assert environment_factory(f"{shop}:Shop") is kind
    made = function_from_file(f"{shop}:Shop")
    for _ in range(3):
        users = [kind(PROBLEM) for _ in range(4)]
        assert len({id(user.tools_object) for user in users}) == 4
        for user in users:
            user.rewards()
    assert made.made == 4


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("Neither", "neither reply and rewards, nor reset"),
        ("NoTools", "no other public method"),
        ("NoHint", "no type hint for item"),
        ("NoWords", "without a docstring"),
        ("NoStart", "NoStart\\(\\), which is to make an environment, raised TypeError"),
    ],
)
def test_a_class_that_is_none_says_what_is_missing(shop, name, why):
    with pytest.raises(UserError, match=why) as info:
        environment_factory(f"{shop}:{name}")
    assert "\n" not in str(info.value)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("NoRow", "raised TypeError: .*'address'"),
        ("NoText", "returned neither a text nor None from reset: 3"),
        ("Endless", "has, .* a prompt of [0-9,]+ tokens; there is room for 511"),
    ],
)
def test_a_run_does_not_begin_where_reset_fails(shop, tmp_path, name, why):
    config = toy_config(tmp_path / "run", environment=f"{shop}:{name}")
    with pytest.raises(UserError, match=f"--environment .*:{name} {why}"):
        train(config, toy_model(), toy_tokenizer(tmp_path), toy_problems())
    assert not (tmp_path / "run").exists()


# ---- what the model is told


def test_a_schema_is_that_of_transformers(shop):
    for name in ("buy", "fail", "long"):
        method = getattr(function_from_file(f"{shop}:Shop")(), name)
        assert json.dumps(tool_schema(method, name)) == json.dumps(get_json_schema(method))


def test_hints_that_say_little_and_arguments_without_names():
    def total(numbers: list, rates: dict, one: list, *more: int, **rest) -> str:
        """Adds up."""

    parameters = tool_schema(total, "total")["function"]["parameters"]
    kinds = {name: one["type"] for name, one in parameters["properties"].items()}
    assert kinds == {"numbers": "array", "rates": "object", "one": "array"}
    assert parameters["required"] == list(kinds)


def test_null_fits_where_a_hint_allows_none():
    def pay(how: Literal["cash", None], change: int | None, to: str | list[str], note: str) -> str:
        """Pays."""

    tool = tool_schema(pay, "pay")
    right = {"how": None, "change": None, "to": "me", "note": ""}
    assert argument_error(right, tool) == ""
    for name in ("to", "note"):
        assert f"{name} is to be" in argument_error(right | {name: None}, tool)


def test_without_a_template_the_tools_stand_before_the_question(shop, tiny_tokenizer_file):
    tokenizer = Qwen3Tokenizer(tiny_tokenizer_file)
    text = tokenizer.decode(environment_factory(f"{shop}:Shop")(PROBLEM).prompt_ids(tokenizer))
    plain = problem_prompt(PROBLEM)
    before, after = plain.split("How much is tea?")
    assert text.startswith(before) and text.endswith("How much is tea? Buy some tea." + after)
    assert "\nbuy(item: string, count: integer, optional, price: number, optional" in text
    assert "): Buys something, if it is there. item: What to buy, in a word. count: How" in text
    assert "'arguments'" not in text and '<tool_call>{"name": ...' in text
    assert tokenizer.results_turn([("buy", "1"), ("fail", "2")]) == (
        "\n<tool_response>\n1\n</tool_response>\n<tool_response>\n2\n</tool_response>\n"
    )


def test_qwen3s_own_form_is_that_of_its_template(tiny_tokenizer_file):
    """The digest is of what the template rendered that is published with Qwen3."""
    tokenizer = Qwen3Tokenizer(tiny_tokenizer_file)
    tokenizer.use_chat_template(True)
    about = {"type": "object", "properties": {"item": {"type": "string", "description": "What."}}}
    price = {"name": "price", "description": "Looks up\na <price> é."}
    price["parameters"] = about | {"required": ["item"]}
    wait = {"name": "wait", "description": "Waits.", "parameters": NO_ARGUMENTS}
    tools = [{"type": "function", "function": one} for one in (price, wait)]
    talk = tokenizer.wrap_chat("How much is tea?", tools=tools) + "Let me see.\n"
    talk += tokenizer.render_tool_call("price", {"item": "tea"}) + "<|im_end|>"
    talk += tokenizer.results_turn([("price", "3"), ("price", "4")])
    found = hashlib.sha256(talk.encode()).hexdigest()
    assert found == "efc4c233880065600e64e506c0ca2e95b1903a229dedcaa611b54bd13ebff169"


# Written for these tests: roles and calls in the manner of Hermes, and calls that are not JSON.
TURNS = (
    "{% for m in messages %}<{{ m.role }}{{ ' ' + m.name if m.name }}>{{ m.content }}"
    "{% for c in m.tool_calls or [] %}CALL"
    "{% endfor %}<|im_end|>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)
JSON_CALL = "<tool_call>{{ c.function | tojson }}</tool_call>"
XML_CALL = "<tool_call><function={{ c.function.name }}></function></tool_call>"
TOOLS = "{% for t in tools or [] %}{{ t.function.name }};{% endfor %}"


@pytest.fixture
def with_template(tiny_tokenizer_file):
    def tokenizer_of(template):
        tokenizer = ModelTokenizer(tiny_tokenizer_file, "<|im_end|>", chat_template=template)
        tokenizer.use_chat_template(True)
        return tokenizer

    return tokenizer_of


def test_a_template_is_given_the_tools_and_their_results(shop, with_template):
    tokenizer = with_template(TOOLS + TURNS.replace("CALL", JSON_CALL))
    user = environment_factory(f"{shop}:Shop")(Problem("one", "How much?", "3", prompt="How much?"))
    text = tokenizer.decode(user.prompt_ids(tokenizer))
    assert text == "buy;fail;long;<user>How much? Buy some tea.<|im_end|><assistant>"
    said = tokenizer.results_turn([("buy", "1"), ("fail", "2")])
    assert said == "<tool buy>1<|im_end|><tool fail>2<|im_end|><assistant>"


def test_a_template_without_a_place_for_tools(shop, with_template):
    tokenizer = with_template(TURNS.replace("CALL", ""))
    user = environment_factory(f"{shop}:Shop")(Problem("one", "How much?", "3", prompt="How much?"))
    text = tokenizer.decode(user.prompt_ids(tokenizer))
    assert text.startswith("<user>Tools, called as <tool_call>")
    assert text.endswith("\n\nHow much? Buy some tea.<|im_end|><assistant>")
    assert tokenizer.results_turn([("buy", "1")]) == (
        "<user><tool_response>\n1\n</tool_response><|im_end|><assistant>"
    )


def test_a_template_whose_calls_are_not_read_is_refused(shop, with_template):
    tokenizer = with_template(TOOLS + TURNS.replace("CALL", XML_CALL))
    with pytest.raises(UserError, match="what is read is <tool_call>.*--prompt plain") as info:
        environment_factory(f"{shop}:Shop")(PROBLEM).prompt_ids(tokenizer)
    assert "\n" not in str(info.value)


# ---- rollouts in which tools are called: a model that says one of a few things at each turn

CALCULATE = call("calculate", '{"expression": "12 * 7"}')
SEARCH, SUBMIT = call("search", '{"word": "tea"}'), call("submit", '{"price": 3}')
BUY = call("buy", '{"item": "tea"}')
SUMS = {CALCULATE: "84", "It is \\boxed{84}.": "", "It is \\boxed{48}.": ""}
SEARCHES = {
    SEARCH: "Since the first of May, tea costs 3.",
    SUBMIT: "Thank you.",
    call("submit", '{"price": "3"}'): "error: submit: price is to be integer, not '3'",
    "Done.": "",
}
PURCHASES = {BUY: "1 x tea", "Done.": ""}
PURCHASES[call("buy", '{"count": 1}')] = "error: buy: the argument 'item' is missing"
# Which things, and what a tool returns to each; whether prompts are in Qwen3's chat template.
WORLDS = {
    "Calculator": (Problem("a", "What is 12 times 7?", "84"), SUMS, False),
    "Search": (Problem("b", "How much does tea cost?", "3"), SEARCHES, True),
    "Shop": (Problem("c", "Go shopping.", "-"), PURCHASES, False),
}
TALK = {"max_new_tokens": 900, "max_turns": 20}


def talkative(folder, turns, chat):
    """A model that looks at the last token alone, its attention being 0: wherever it may speak it
    says any of these turns, each a token of its tokenizer, and then ends the turn."""
    inner = build_tokenizer()
    inner.add_tokens([AddedToken(turn, normalized=False) for turn in turns])
    path = folder / ("tokenizer-reasoning.json" if chat else "tokenizer-base.json")
    inner.save(str(path))
    tokenizer = Qwen3Tokenizer(path)
    tokenizer.use_chat_template(chat)
    model = toy_model(vocab_size=tokenizer.vocab_size, context_length=4096)
    for name, weight in model.named_parameters():
        if "out_proj" in name:
            torch.nn.init.zeros_(weight)
    # A result ends with a line's end in both forms, a prompt with that or "Answer:".
    starts = [tokenizer.encode(end, chat_wrapped=False)[-1] for end in ("\n", "Answer:")]
    said = [tokenizer.encode(turn, chat_wrapped=False)[0] for turn in turns]
    pairs = [(start, turn) for start in starts for turn in said]
    pairs += [(turn, tokenizer.eos_token_id) for turn in said for _ in starts]
    now, following = torch.tensor(pairs).unbind(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)
    for _ in range(60):
        F.cross_entropy(model(now[:, None])[:, 0], following).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model, tokenizer


@pytest.fixture(scope="module", params=WORLDS)
def world(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "shop.py").write_text(SHOP)
    file = f"{folder}/shop.py" if request.param == "Shop" else "ch07/my_tools.py"
    problem, turns, chat = WORLDS[request.param]
    row = {"problem": problem.problem, "answer": problem.answer}
    (folder / "problems.json").write_text(json.dumps([row]))
    return folder, f"{file}:{request.param}", problem, turns, *talkative(folder, turns, chat)


def test_results_are_read_and_not_trained_on(world):
    _, environment, problem, turns, model, tokenizer = world
    asked = Sampling(environment=environment, rollouts=32, **TALK)
    (group,) = sample_groups(model, tokenizer, [problem], asked, step=0, engine=FAST)
    assert {rollout.outcome["correct"] for rollout in group.rollouts} == {0.0, 1.0}
    assert not any(rollout.failure for rollout in group.rollouts)
    talks = [rollout for rollout in group.rollouts if rollout.finished]
    assert len(talks) > 20 and max(rollout.turns for rollout in talks) > 2
    for rollout in talks:
        mask = make_batch([rollout]).mask[0, len(rollout.prompt_ids) :].tolist()
        drawn = [token for token, own in zip(rollout.response_ids, mask, strict=True) if own]
        said = tokenizer.decode(drawn).split(tokenizer.eos_token)[:-1]
        whole = ""
        for turn in said:
            whole += turn + tokenizer.eos_token
            whole += tokenizer.results_turn([("", turns[turn])]) if turns[turn] else ""
        assert tokenizer.decode(rollout.response_ids) == whole
        assert rollout.turns == len(said)
        paid = rollout.outcome["correct"]
        assert paid == any(good in said for good in (SUBMIT, BUY, "It is \\boxed{84}."))


def test_three_steps(world):
    folder, environment, _, _, model, tokenizer = world
    task = {"problems": str(folder / "problems.json"), "environment": environment}
    sizes = {"steps": 3, "problems_per_step": 1, "rollouts": 16, "lr": 3e-3}
    train(toy_config(folder / "run", **task, **sizes, **TALK), model, tokenizer)
    steps = list(read_lines(folder / "run" / "metrics.jsonl"))
    assert len(steps) == 3 and 0 < steps[0]["env/all/correct"] < 1
    assert not any(row.get("env/all/reward_failed") for row in steps)  # noted where some failed
    assert all(row["env/all/turns_per_episode"] > 1 for row in steps)
    assert all(row["optim/grad_norm"] > 0 for row in steps)


def test_the_same_through_rfs_evaluate(world):
    folder, environment, _, _, model, tokenizer = world
    place = save_hf_folder(model, tokenizer, folder / "saved")
    words = ["--model", place, "--problems", folder / "problems.json", "--samples", 32]
    words += ["--environment", environment, "--temperature", 1, "--device", "cpu"]
    words += ["--max-new-tokens", 900, "--max-turns", 20, "--out-path", folder / "answers.jsonl"]
    assert main(["evaluate", *map(str, words)]) == 0
    answers = read_lines(folder / "answers.jsonl")
    assert {row["reward"] for row in answers} == {0.0, 1.0}
    assert any("</tool_response>" in row["generated_text"] for row in answers)
    assert not any(row["reward_failure"] for row in answers)


def test_rollouts_of_a_group_may_be_given_different_tasks(shop, tiny_tokenizer_file):
    tokenizer = Qwen3Tokenizer(tiny_tokenizer_file)
    model = toy_model(vocab_size=tokenizer.vocab_size, context_length=1024)
    problems = [PROBLEM, Problem("two", "How much is cake?", "4")]
    wavering = function_from_file(f"{shop}:Wavering")
    found = []
    for rows in (64, 3):
        wavering.told = 0
        asked = Sampling(12, environment=f"{shop}:Wavering", rollouts=4, sample_rows=rows)
        groups = sample_groups(model, tokenizer, problems, asked, step=0, engine=FAST)
        found.append([rollout for group in groups for rollout in group.rollouts])
        for number, rollout in enumerate(found[-1], 1):
            prompt = tokenizer.decode(rollout.prompt_ids)
            assert f"? Number {number}\n" in prompt and rollout.problem.problem in prompt
    for one, other in zip(*found, strict=True):
        assert one.response_ids == other.response_ids
        assert one.logprobs == pytest.approx(other.logprobs, abs=2e-5)


def test_a_problem_without_an_answer_will_do_where_the_object_pays(shop, tmp_path):
    tokenizer = toy_tokenizer(tmp_path)
    problem = [Problem("one", "a", "(")]  # which the grader cannot read
    asked = Sampling(3, environment=f"{shop}:Shop", rollouts=1)
    assert evaluate(toy_model(), tokenizer, problem, asked).accuracy == 0
    with pytest.raises(UserError):
        evaluate(toy_model(), tokenizer, problem, Sampling(3, environment=f"{shop}:Silent"))


def test_a_function_that_makes_objects_will_do(shop):
    kind = environment_factory(f"{shop}:a_shop")
    assert list(kind.tools) == ["buy", "fail", "long"] and kind.gives_reward
    assert kind is tool_environment_factory(run_file(str(shop)).a_shop)


def test_the_shipped_calculator():
    calculate = Calculator().calculate
    assert (calculate("12 * 7"), calculate("-3 + 4"), calculate("2 - -2")) == ("84", "1", "4")
    for other in ("True + 1", "7 / 2", "x"):
        with pytest.raises(ValueError, match="only whole numbers"):
            calculate(other)
