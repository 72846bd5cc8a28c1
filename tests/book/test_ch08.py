"""Chapter 8's plain functions by hand, and against the package's `sft`."""

import copy
import csv
import json
from unittest.mock import Mock

import matplotlib
import matplotlib.pyplot as plt
import pytest
import torch
from file_server import closed_port

from reasoning_from_scratch import Sampling, ch08, load_model_and_tokenizer
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files.weights import shipped_checkpoint
from reasoning_from_scratch.optim.adamw import AdamW
from reasoning_from_scratch.policy import LocalPolicy
from reasoning_from_scratch.problems import render_prompt
from reasoning_from_scratch.rollouts import Group, Rollout
from reasoning_from_scratch.trainer import set_advantages, train_step
from rfs import Policy, load_problems
from rfs.run.options import configure, resolved
from tests.book.stand_ins import LetterTokenizer, Wrapping

matplotlib.use("Agg")

ROWS = [
    {"problem": "1 + 1?", "gtruth_answer": "2", "message_thinking": "two ", "message_content": "2"},
    {"problem": "2 + 2?", "gtruth_answer": "4", "message_thinking": "?", "message_content": " "},
]


@pytest.fixture(scope="module")
def tiny():
    return load_model_and_tokenizer("tiny-base")


@pytest.fixture(scope="module")
def examples(tiny):
    _, tokenizer = tiny
    data = [
        {"problem": p.problem, "message_thinking": p.solution, "message_content": p.answer}
        for p in load_problems("tiny", limit=6)
    ]
    return ch08.build_examples(data, tokenizer)[0]


# --- the data ---


def test_data_is_downloaded_once(tmp_path, monkeypatch):
    get = Mock(return_value=Mock(json=lambda: ROWS))
    monkeypatch.setattr(ch08.requests, "get", get)
    path = tmp_path / "rows.json"
    assert ch08.load_distill_data(path, "qwen3-235b-a22b-math500") == ROWS
    assert ch08.load_distill_data(path) == ROWS and json.loads(path.read_text()) == ROWS
    ((url,), _), *others = get.call_args_list
    assert url.endswith("rasbt/math_distill/resolve/main/data/qwen3-235b-a22b-math500.json")
    assert not others
    monkeypatch.chdir(tmp_path)
    assert ch08.load_distill_data(save_copy=False) == ROWS
    assert not (tmp_path / "deepseek-r1-math-train.json").exists()
    ch08.load_distill_data()
    assert (tmp_path / "deepseek-r1-math-train.json").exists()


def test_without_a_network_it_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{closed_port()}")
    with pytest.raises(UserError, match="could not download rows.json"):
        ch08.load_distill_data(tmp_path / "rows.json")
    with pytest.raises(ValueError, match="no partition r1.*deepseek-r1-math-train"):
        ch08.load_distill_data(partition="r1")


# --- examples ---


def test_the_answer_is_thinking_then_content():
    assert ch08.format_distilled_answer(ROWS[0]) == "<think>two</think>\n\n2"
    with pytest.raises(ValueError, match="message_content is empty"):
        ch08.format_distilled_answer(ROWS[1])
    with pytest.raises(ValueError, match="message_content is empty"):
        ch08.format_distilled_answer(ROWS[0] | {"message_content": None})
    silent = ch08.format_distilled_answer(ROWS[0] | {"message_thinking": None})
    assert silent == "<think></think>\n\n2"
    with pytest.raises(ValueError, match="no message_thinking"):
        ch08.format_distilled_answer({"message_content": "2"})


def test_the_reasoning_tokenizer_thinks_in_its_chat_template(tmp_path, monkeypatch):
    def downloaded(kind, tokenizer_only, out_dir):
        assert (kind, tokenizer_only) == ("reasoning", True)
        source = shipped_checkpoint("tiny") / "tokenizer.json"
        (out_dir / "tokenizer-reasoning.json").write_bytes(source.read_bytes())

    monkeypatch.setattr(ch08, "download_qwen3_small", downloaded)
    tokenizer = ch08.load_reasoning_tokenizer(local_dir=tmp_path)
    text = tokenizer.decode(tokenizer.encode("2 + 2?"))
    assert text == "<|im_start|>user\n2 + 2?<|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer.eos_token == "<|im_end|>"


@pytest.mark.parametrize("tokenizer", [LetterTokenizer(), Wrapping()])
def test_examples_are_prompt_answer_and_end(tokenizer):
    examples, skipped = ch08.build_examples(ROWS, tokenizer)
    assert skipped == 1 and len(examples) == 1
    (example,) = examples
    prompt = tokenizer.encode(render_prompt("1 + 1?"))
    assert example["token_ids"][: example["prompt_len"]] == prompt
    answer = example["token_ids"][len(prompt) :]
    assert tokenizer.decode(answer) == "<think>two</think>\n\n2\0"


def test_lengths(capsys):
    examples = [{"token_ids": [0] * n, "prompt_len": 2} for n in (5, 3, 10)]
    ch08.compute_length(examples)
    assert capsys.readouterr().out.splitlines() == [
        "Average: 6 tokens",
        "Shortest: 3 tokens (index 1)",
        "Longest: 10 tokens (index 2)",
    ]
    ch08.compute_length(examples, answer_only=True)
    assert "Longest: 8 tokens (index 2)" in capsys.readouterr().out
    assert ch08.filter_examples_by_max_len(examples, max_len=5) == examples[:2]


# --- the loss, and the loop ---


def test_the_loss_and_its_gradient_are_the_packages(tiny, examples):
    """The book takes each example's mean; the package's step does so with aggregate=sequence."""
    model, tokenizer = tiny
    plain, fast = copy.deepcopy(model), copy.deepcopy(model)
    losses = [ch08.compute_example_loss(plain, one, "cpu") for one in examples]
    torch.stack(losses).mean().backward()

    config = resolved(
        configure("sft", model="tiny", aggregate="sequence", grad_clip=0.0, device="cpu")
    )
    optimizer = AdamW(fast)
    kept = {}
    optimizer.step = lambda lr: kept.update(
        {name: optimizer.gradient(p).clone() for name, p in fast.named_parameters()}
    )
    policy = LocalPolicy(fast, optimizer, config, tokenizer=tokenizer)
    problems = load_problems("tiny", limit=6)
    groups = [Group(p, [as_rollout(e)]) for p, e in zip(problems, examples, strict=True)]
    set_advantages(groups, config)
    numbers = train_step(policy, groups, config, lr=0.0)
    assert numbers["optim/loss"] == pytest.approx(torch.stack(losses).mean().item(), rel=1e-5)
    assert ch08.evaluate_examples(model, examples, "cpu") == pytest.approx(numbers["optim/loss"])
    for name, parameter in plain.named_parameters():
        torch.testing.assert_close(kept[name], parameter.grad, rtol=1e-3, atol=1e-6)


def as_rollout(example) -> Rollout:
    ids, start = example["token_ids"], example["prompt_len"]
    zeros = [0.0] * (len(ids) - start)
    return Rollout(None, ids[:start], ids[start:], zeros, finished=True, rewards={"correct": 1.0})


# --- what the notebook builds ---


def test_the_weighted_loss_is_the_books_at_weight_one(tiny, examples):
    model, _ = tiny
    rollouts = [as_rollout(example) for example in examples[:3]]
    lengths = [len(rollout.response_ids) for rollout in rollouts]
    with torch.no_grad():
        losses = [ch08.compute_example_loss(model, one, "cpu").item() for one in examples[:3]]
        loss = ch08.weighted_loss(model, rollouts, [1.0, 0.0, 2.0])
        assert loss.item() == pytest.approx(
            (losses[0] * lengths[0] + 2 * losses[2] * lengths[2]) / sum(lengths), rel=1e-4
        )
        only_last = torch.zeros(lengths[0])
        only_last[-1] = 1.0
        (logprobs,) = LocalPolicy(model).logprobs(rollouts[:1])
        loss = ch08.weighted_loss(model, rollouts[:1], [only_last])
        assert loss.item() == pytest.approx(-logprobs[-1].item() / lengths[0], abs=1e-5)


def test_learning_follows_the_weighted_loss(examples):
    policy = Policy.load("tiny", device="cpu")
    rollouts = [as_rollout(example) for example in examples[:3]]
    weights = [1.0, -0.5, torch.linspace(-1, 1, len(rollouts[2].response_ids))]
    loss = ch08.weighted_loss(policy.model, rollouts, weights)
    loss.backward()
    expected = policy.model.tok_emb.weight.grad.clone()
    policy.optimizer.zero_grad()
    kept = []
    policy.optimizer.step = lambda lr: kept.append(policy.model.tok_emb.weight.grad.clone())
    policy.optimizer.clip_gradient = lambda largest: 0.0
    assert ch08.learn(policy, rollouts, weights, lr=1e-4) == pytest.approx(loss.item(), rel=1e-4)
    torch.testing.assert_close(kept[0], expected, rtol=1e-3, atol=1e-6)


def test_practice_learns_from_groups_that_differ_only():
    policy = Policy.load("tiny", device="cpu")
    sampling = configure("grpo", model="tiny", rollouts=4, max_new_tokens=80)
    groups = ch08.practice(policy, load_problems("tiny", limit=6), sampling, 0, lr=1e-4)
    assert {group.uniform for group in groups} == {True, False}
    for group in groups:
        weights = [rollout.token_advantages for rollout in group.rollouts]
        if group.uniform:
            assert weights == [None] * 4
        else:
            assert all((w == w[0]).all() for w in weights)
            assert sum(w[0] for w in weights) == pytest.approx(0, abs=1e-5)
            assert weights[group.rewards.index(1)][0] > 0


def test_a_teacher_who_agrees_has_nothing_to_say():
    policy, other = (Policy.load(name, device="cpu") for name in ("tiny-base", "tiny-grpo"))
    (group,) = policy.sample(load_problems("tiny", limit=1), Sampling(40, rollouts=3))
    with pytest.raises(ValueError, match="at least 2 rollouts"):
        ch08.teacher_weights(policy, policy, group.rollouts[:1])
    same = ch08.teacher_weights(policy, policy, group.rollouts)
    assert all((weights == 0).all() for weights in same)
    weights = ch08.teacher_weights(policy, other, group.rollouts)
    told = ch08.teacher_weights(policy, policy, group.rollouts, told=True)
    for one in (weights, told):
        assert [len(w) for w in one] == [len(r.response_ids) for r in group.rollouts]
        assert any(w.abs().max() > 1e-3 for w in one)
    assert group.rollouts[0].prompt_ids == policy.tokenizer.encode(
        ch08.render_prompt(group.problem.problem)
    )  # the student's own prompt stays


def test_evaluating_leaves_the_models_mode(tiny, examples):
    model = copy.deepcopy(tiny[0]).train()
    ch08.evaluate_examples(model, examples[:1], "cpu")
    assert model.training
    model.eval()
    ch08.evaluate_examples(model, examples[:1], "cpu")
    assert not model.training


def test_training_learns_logs_and_saves(tiny, examples, tmp_path, capsys):
    model = copy.deepcopy(tiny[0])
    log = tmp_path / "log.csv"
    given = model, examples[:4], examples[4:], "cpu"
    how = dict(lr=1e-3, log_every=3, checkpoint_dir=tmp_path / "saves", csv_log_path=log)
    assert ch08.train_distillation(*given, epochs=2, grad_clip_norm=1.0, **how) is model
    with open(log) as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["epoch", "total_steps", "train_loss", "val_loss"]
    assert [(row["epoch"], row["total_steps"]) for row in rows] == [
        ("1", "3"), ("1", "4"), ("2", "6"), ("2", "8")
    ]  # fmt: skip
    assert float(rows[-1]["train_loss"]) < float(rows[0]["train_loss"])
    saves = sorted(path.name for path in (tmp_path / "saves").iterdir())
    assert saves == [
        "qwen3-0.6B-distill-step00004-epoch1.pth",
        "qwen3-0.6B-distill-step00008-epoch2.pth",
    ]
    state = torch.load(tmp_path / "saves" / saves[-1], weights_only=True)
    assert all(torch.equal(state[name], w) for name, w in model.state_dict().items())
    assert "[Epoch 2 | Step 8/8] train_loss=" in capsys.readouterr().out


def test_the_order_is_the_seeds(tmp_path):
    examples, orders = [{"token_ids": [i, 0], "prompt_len": 1} for i in range(6)], []
    files = {"checkpoint_dir": tmp_path, "csv_log_path": tmp_path / "log.csv"}

    def note_the_first_token(model, given):
        if model.training:
            orders[-1].append(given[0][0, 0].item())

    for seed in (1, 1, 2):
        model = torch.nn.Embedding(6, 6)
        model.register_forward_pre_hook(note_the_first_token)
        orders.append([])
        ch08.train_distillation(model, examples, examples, "cpu", seed=seed, **files)
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0][:6]) == sorted(orders[0][6:]) and orders[0][:6] != orders[0][6:]


def test_ctrl_c_saves(tiny, examples, tmp_path, capsys):
    model = copy.deepcopy(tiny[0])
    model.register_forward_pre_hook(Mock(side_effect=KeyboardInterrupt))
    given = dict(checkpoint_dir=tmp_path, csv_log_path=tmp_path / "log.csv")
    assert ch08.train_distillation(model, examples, examples, "cpu", **given) is model
    assert (tmp_path / "qwen3-0.6B-distill-step00000-interrupt.pth").exists()
    assert "Interrupted" in capsys.readouterr().out


def test_nothing_to_learn_is_said():
    with pytest.raises(ValueError, match="to evaluate on"):
        ch08.train_distillation(None, [], [], "cpu")


def test_the_plot(tmp_path, monkeypatch):
    shown = []
    monkeypatch.setattr(plt, "show", lambda: shown.append(plt.gca()))
    path = tmp_path / "log.csv"
    for step in (1, 2):
        ch08.append_csv_metrics(path, 1, step, 1.0 / step, 2.0 / step)
    ch08.plot_distill_metrics(path)
    assert [line.get_ydata().tolist() for line in shown[0].lines] == [[1.0, 0.5], [2.0, 1.0]]
    with pytest.raises(UserError, match="there is no .*csv_log_path names"):
        ch08.plot_distill_metrics(tmp_path / "none.csv")
