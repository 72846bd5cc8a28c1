"""What the book's cells import: each name, with each of its parameters, really called.

Every row is called three times: with a value for each parameter by position, with the same values
by keyword, and with those alone that have no default.
"""

import inspect
import json
import time
from pathlib import Path
from types import SimpleNamespace

import matplotlib.pyplot as plt
import pytest
import torch
from file_server import hub, hub_at, serving
from toy import TOY_CONFIG, toy_model, toy_tokenizer

from reasoning_from_scratch import (
    appendix_f,
    ch02,
    ch03,
    ch04,
    ch05,
    ch06,
    ch07,
    qwen3,
    utils,
)
from reasoning_from_scratch.files import downloads
from reasoning_from_scratch.problems import render_prompt
from tests.files.test_downloads import CONTENT

MODULES = {"ch02": ch02, "ch03": ch03, "ch04": ch04, "ch05": ch05, "ch06": ch06, "ch07": ch07}
MODULES |= {"qwen3": qwen3, "utils": utils, "appendix_f": appendix_f}
ROWS = [{"problem": "abc", "answer": "1"}, {"problem": "bcd", "answer": "2"}]
GRPO_FILE = "qwen3-0.6B-rlvr-grpo-step00100.pth"
DISTILL_FILE = "qwen3-0.6B-distill-step11492-epoch2.pth"
IDS = torch.tensor([[1, 2, 3]])
SCORES = torch.arange(19_900.0)[None]
END = 32  # the toy tokenizer's <|endoftext|>


def always_7(model, token_ids, max_new_tokens, eos_token_id=None):
    yield from [torch.tensor([[7]])] * max_new_tokens


def box_2(prompt):
    return f"{prompt} box 2"


def length(answer, prompt):
    return len(answer)


@pytest.fixture
def world(tmp_path, monkeypatch, capsys):
    """A folder with what the book's cells have in theirs, small, and the hub on this machine."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plt, "show", lambda: None)
    Path("qwen3").mkdir()
    tokenizer, model = toy_tokenizer(Path("qwen3")), toy_model()
    toy_tokenizer(Path())
    torch.save(model.state_dict(), "qwen3/qwen3-0.6B-base.pth")
    for name in ("math500_test.json", "math_train.json", "rows.json"):
        Path(name).write_text(json.dumps(ROWS))
    Path("metrics.csv").write_text("step,reward_avg,eval_acc\n1,0.5,\n2,0.75,0.5\n")
    with serving(CONTENT) as server:
        server.behaviors = [hub]
        hub_at(monkeypatch, server.url, tmp_path / "hub cache")
        monkeypatch.setattr(downloads, "GITHUB_RAW", server.url)
        yield SimpleNamespace(
            model=model,
            tokenizer=tokenizer,
            url=f"{server.url}/file.bin",
            printed=lambda: capsys.readouterr().out,
            pair=(model, tokenizer),
            cache=filled_cache(),
        )
    plt.close("all")


def filled_cache():
    cache = qwen3.KVCache(2)
    for layer in range(2):
        cache.update(layer, (torch.full((1, 2, 3, 8), layer), torch.zeros(1, 2, 3, 8)))
    return cache


def tensors(*shapes):
    return lambda w, found: [tuple(tensor.shape) for tensor in found] == list(shapes)


def shape(*sizes):
    return lambda w, found: tuple(found.shape) == sizes


def prints(*words):
    def check(w, found):
        text = w.printed()
        return all(word in text for word in words)

    return check


def equals(expected):
    return lambda w, found: found == expected


def is_file(*names):
    return lambda w, found: all(Path(name).read_bytes() == CONTENT for name in names)


def drawn(*panels):
    """How many axes of the current figure show something."""
    return lambda w, found: [axis.has_data() for axis in plt.gcf().axes] == list(panels)


def lines_of(path, count):
    return lambda w, found: len(Path(path).read_text().splitlines()) == count


def is_step(w, found):
    csv, saved = Path("log.csv").read_text(), Path("saves") / "qwen3-0.6B-rlvr-grpo-step00002.pth"
    return found is w.model and len(csv.splitlines()) == 3 and saved.exists()


GROUP_KEYS = {"loss", "pg_loss", "rewards", "advantages", "samples", "loss_tensor"}
VOTE_KEYS = {
    "full_answers", "short_answers", "counts", "groups", "majority_winners", "final_answer",
}  # fmt: skip

# The documented signature; a value for each parameter; what must have come of it.
CALLS = [
    # ---- the model
    ("qwen3.Qwen3Model(cfg)", lambda w: (TOY_CONFIG,), lambda w, m: m.cfg == TOY_CONFIG),
    (
        "qwen3.Qwen3Model.forward(self, in_idx, cache=None)",
        lambda w: (w.model, IDS, qwen3.KVCache(2)),
        shape(1, 3, 40),
    ),
    ("qwen3.Qwen3Model.reset_kv_cache(self)", lambda w: (w.model,), equals(None)),
    ("qwen3.KVCache(n_layers)", lambda w: (2,), lambda w, c: c.get_all() == [None, None]),
    (
        "qwen3.KVCache.get(self, layer)",
        lambda w: (w.cache, 1),
        lambda w, found: found[0].shape == (1, 2, 3, 8) and found[0].unique().item() == 1,
    ),
    (
        "qwen3.KVCache.update(self, layer, value)",
        lambda w: (w.cache, 1, (torch.ones(1, 2, 5, 8), torch.zeros(1, 2, 5, 8))),
        lambda w, _: w.cache.get(1)[0].shape == (1, 2, 5, 8),
    ),
    ("qwen3.KVCache.get_all(self)", lambda w: (w.cache,), lambda w, found: len(found) == 2),
    ("qwen3.KVCache.reset(self)", lambda w: (w.cache,), lambda w, _: w.cache.get(1) is None),
    (
        "qwen3.GroupedQueryAttention(cfg)",
        lambda w: (TOY_CONFIG,),
        lambda w, found: found.W_query.weight.shape == (32, 32),
    ),
    (
        "qwen3.FeedForward(cfg)",
        lambda w: (TOY_CONFIG,),
        lambda w, found: found(torch.ones(1, 3, 32)).shape == (1, 3, 32),
    ),
    (
        "qwen3.TransformerBlock(cfg)",
        lambda w: (TOY_CONFIG,),
        lambda w, found: found.norm1.scale.shape == (32,),
    ),
    (
        "qwen3.RMSNorm(emb_dim, eps=1e-6, bias=False, qwen3_compatible=True)",
        lambda w: (4, 1e-5, True, False),
        lambda w, norm: norm(torch.full((1, 4), 3.0)).tolist() == [pytest.approx([1.0] * 4)],
    ),
    (
        "qwen3.compute_rope_params("
        "head_dim, theta_base=10_000, context_length=4096, dtype=torch.float32)",
        lambda w: (8, 1e6, 5, torch.float64),
        lambda w, found: tensors((5, 8), (5, 8))(w, found) and found[0].dtype == torch.float64,
    ),
    (
        "qwen3.apply_rope(x, cos, sin, offset=0)",
        lambda w: (torch.ones(1, 2, 3, 8), *qwen3.compute_rope_params(8, 1e4, 9), 4),
        shape(1, 2, 3, 8),
    ),
    (
        "qwen3.Qwen3Tokenizer(tokenizer_file_path='tokenizer-base.json', "
        "apply_chat_template=False, add_generation_prompt=False, add_thinking=False)",
        lambda w: ("qwen3/tokenizer-base.json", True, True, True),
        lambda w, found: found.eos_token_id == found.pad_token_id == END and found._tok,
    ),
    (
        "qwen3.Qwen3Tokenizer.encode(self, prompt, chat_wrapped=None)",
        lambda w: (w.tokenizer, "abc", False),
        equals([1, 2, 3]),
    ),
    (
        "qwen3.Qwen3Tokenizer.decode(self, ids)",
        lambda w: (w.tokenizer, [1, 2, END]),
        equals("ab<|endoftext|>"),
    ),
    (
        "qwen3.download_qwen3_small(kind='base', tokenizer_only=False, out_dir='.')",
        lambda w: ("reasoning", False, "new"),
        is_file("new/qwen3-0.6B-reasoning.pth", "new/tokenizer-reasoning.json"),
    ),
    (
        "qwen3.download_qwen3_grpo_checkpoints(grpo_type='no_kl', step='00050', out_dir='.')",
        lambda w: ("kl", "00100", "new"),
        is_file(f"new/7_5_plus_kl/checkpoints/{GRPO_FILE}", f"new/{GRPO_FILE}"),
    ),
    (
        "qwen3.download_qwen3_distill_checkpoints("
        "distill_type='deepseek_r1', step='06682', out_dir='.')",
        lambda w: ("qwen3_235b_a22b", "11492", "new"),
        is_file(
            f"new/ch08_distill_qwen3_235b_a22b/checkpoints/{DISTILL_FILE}", f"new/{DISTILL_FILE}"
        ),
    ),
    (
        "qwen3.load_hf_weights_into_qwen(model, param_config, params)",
        lambda w: (w.model, TOY_CONFIG, toy_model(1).state_dict()),
        lambda w, _: torch.equal(w.model.tok_emb.weight, toy_model(1).tok_emb.weight),
    ),
    # ---- chapter 2
    ("ch02.get_device(enable_tensor_cores=True)", lambda w: (False,), prints("Using ")),
    *(
        (
            f"ch02.generate_text_basic{kind}(model, token_ids, max_new_tokens, eos_token_id=None)",
            lambda w: (w.model, IDS, 4, END),
            (lambda w, found: 0 < len(found) <= 4 and found[0].shape == (1, 1))
            if "stream" in kind
            else shape(1, 4),
        )
        for kind in ("", "_cache", "_stream", "_stream_cache")
    ),
    (
        "ch02.generate_stats(output_token_ids, tokenizer, start_time, end_time)",
        lambda w: (IDS, w.tokenizer, 1.0, 3.0),
        prints("Time: 2.00 sec", "2 tokens/sec", "abc"),
    ),
    # ---- chapter 3
    (
        "ch03.load_model_and_tokenizer(which_model, device, use_compile, local_dir='qwen3')",
        lambda w: ("base", "cpu", False, "qwen3"),
        lambda w, found: found[0].cfg["vocab_size"] == 40 and found[1].encode("a") == [1],
    ),
    (
        "ch03.load_tokenizer_only(which_model, local_dir='qwen3')",
        lambda w: ("base", "qwen3"),
        lambda w, found: found.encode("a") == [1],
    ),
    (
        "ch03.generate_text_stream_concat("
        "model, tokenizer, prompt, device, max_new_tokens, verbose=False)",
        lambda w: (*w.pair, "abc", "cpu", 4, True),
        lambda w, found: found and w.printed() == found + "\n",
    ),
    ("ch03.get_last_boxed(text)", lambda w: ("\\boxed{1} \\boxed{ 2\n}",), equals(" 2\n")),
    (
        "ch03.extract_final_candidate(text, fallback='number_then_full')",
        lambda w: ("it is 7", None),
        equals(""),
    ),
    ("ch03.normalize_text(text)", lambda w: (r"\left(1,\,2\right)",), equals("(1,2)")),
    ("ch03.sympy_parser(expr)", lambda w: ("1/2 + 1/2",), lambda w, found: found == 1),
    ("ch03.equality_check(expr_gtruth, expr_pred)", lambda w: ("1/2", "0.5"), equals(True)),
    ("ch03.split_into_parts(text)", lambda w: ("(1, 2)",), equals(["1", "2"])),
    ("ch03.grade_answer(pred_text, gt_text)", lambda w: (r"\frac12", "1/2"), equals(True)),
    (
        "ch03.run_demos_table(tests)",
        lambda w: ([("one", "1", "1.0", True), ("two", "1", "2", True)],),
        prints("FAIL", "Passed 1/2"),
    ),
    (
        "ch03.render_prompt(prompt)",
        lambda w: ("1 + 1?",),
        lambda w, found: found.endswith("Question:\n1 + 1?\n\nAnswer:"),
    ),
    *(
        (
            f"{name}(local_path='{path}', save_copy=True)",
            lambda w: ("rows.json", False),
            equals(ROWS),
        )
        for name, path in (
            ("ch03.load_math500_test", "math500_test.json"),
            ("ch06.load_math_train", "math_train.json"),
        )
    ),
    (
        "ch03.mini_eval_demo(model, tokenizer, device)",
        lambda w: (*w.pair, "cpu"),
        prints("Right answer:  2/3", "Graded:"),
    ),
    (
        "ch03.eta_progress_message(processed, total, start_time, show_eta=False, label='Progress')",
        lambda w: (1, 3, time.time() - 5, True, "Here"),
        equals("Here: 1/3 | ETA: 10s"),
    ),
    (
        "ch03.evaluate_math500_stream(model, tokenizer, device, math_data, out_path=None, "
        "max_new_tokens=512, verbose=False)",
        lambda w: (*w.pair, "cpu", ROWS, "answers.jsonl", 4, True),
        lambda w, found: found[1] == 2 and lines_of("answers.jsonl", 2)(w, found),
    ),
    # ---- chapter 4
    (
        "ch04.generate_text_stream_concat_flex(model, tokenizer, prompt, device, max_new_tokens, "
        "verbose=False, generate_func=None)",
        lambda w: (*w.pair, "abc", "cpu", 3, False, always_7),
        equals("ggg"),
    ),
    (
        "ch04.scale_logits_by_temperature(logits, temperature)",
        lambda w: (torch.tensor([1.0, 2.0]), 0.5),
        lambda w, found: found.tolist() == [2.0, 4.0],
    ),
    (
        "ch04.generate_text_temp_stream_cache("
        "model, token_ids, max_new_tokens, eos_token_id=None, temperature=0.0)",
        lambda w: (w.model, IDS, 4, END, 0.7),
        lambda w, found: 0 < len(found) <= 4,
    ),
    (
        "ch04.top_p_filter(probas, top_p)",
        lambda w: (torch.tensor([[0.5, 0.25, 0.25]]), 0.6),
        lambda w, found: found.tolist() == [pytest.approx([2 / 3, 1 / 3, 0.0])],
    ),
    (
        "ch04.generate_text_top_p_stream_cache("
        "model, token_ids, max_new_tokens, eos_token_id=None, temperature=0.0, top_p=None)",
        lambda w: (w.model, IDS, 4, END, 0.7, 0.9),
        lambda w, found: 0 < len(found) <= 4,
    ),
    (
        "ch04.count_samples(probas, num_samples=1000, threshold=1, tokenizer=None)",
        lambda w: (torch.tensor([0.0, 1.0]), 5, 4, w.tokenizer),
        prints("5x 'a'"),
    ),
    (
        "ch04.plot_scores_bar("
        "next_token_logits, start=19_800, end=19_900, arrow=True, ylabel='Logit value')",
        lambda w: (SCORES, 5, 12, False, "Score"),
        drawn(True),
    ),
    (
        "ch04.plot_logits_with_temperature("
        "next_token_logits, start=19_800, end=19_900, T1=0.5, T2=5.0, temps=None)",
        lambda w: (SCORES, 5, 12, 0.2, 3.0, (0.1, 2.0)),
        drawn(True),
    ),
    (
        "ch04.self_consistency_vote(model, tokenizer, prompt, device, num_samples=10, "
        "temperature=0.8, top_p=0.9, max_new_tokens=2048, show_progress=True, "
        "show_long_answer=False, seed=None)",
        lambda w: (*w.pair, "abc", "cpu", 3, 0.9, 0.8, 4, False, True, 5),
        lambda w, vote: set(vote) == VOTE_KEYS and len(vote["full_answers"]) == 3,
    ),
    # ---- chapter 5
    (
        "ch05.heuristic_score(answer, prompt=None, brevity_bonus=500.0, boxed_bonus=2.0, "
        "extract_bonus=1.0, fulltext_bonus=0.0)",
        lambda w: ("", "?", 10.0, 3.0, 2.0, 1.0),
        equals(1.5),
    ),
    *(
        (
            f"ch05.{name}(model, tokenizer, prompt, device, show=True)",
            lambda w: (*w.pair, "abc", "cpu", False),
            lambda w, found: found.shape == (2,) and not w.printed(),
        )
        for name in ("calc_next_token_probas", "calc_next_token_logprobas")
    ),
    (
        "ch05.avg_logprob_answer(model, tokenizer, prompt, answer, device='cpu')",
        lambda w: (*w.pair, "abc", "de", "cpu"),
        lambda w, found: found < 0,
    ),
    (
        "ch05.make_critique_prompt(raw_prompt, draft)",
        lambda w: ("THE QUESTION", "THE DRAFT"),
        lambda w, text: all(x in text for x in ("QUESTION", "DRAFT", "meticulous reviewer")),
    ),
    (
        "ch05.make_refine_prompt(raw_prompt, draft, critique)",
        lambda w: ("THE QUESTION", "THE DRAFT", "THE REVIEW"),
        lambda w, text: "THE DRAFT" in text and "THE REVIEW" in text,
    ),
    (
        "ch05.self_refinement_loop(model, tokenizer, raw_prompt, device, iterations=2, "
        "max_response_tokens=2048, max_critique_tokens=256, score_fn=None, "
        "prompt_renderer=render_prompt, prompt_suffix='', verbose=False, temperature=0.7, "
        "top_p=0.9)",
        lambda w: (*w.pair, "abc", "cpu", 1, 4, 3, length, box_2, " now", True, 0.9, 0.8),
        lambda w, found: len(found["steps"]) == 1 and "final_extracted" in found,
    ),
    # ---- chapter 6
    (
        "ch06.sample_response("
        "model, tokenizer, prompt, device, max_new_tokens=512, temperature=0.8, top_p=0.9)",
        lambda w: (*w.pair, "abc", "cpu", 4, None, None),
        lambda w, found: found[0].tolist()[:3] == [1, 2, 3] and found[1] == 3,
    ),
    ("ch06.reward_rlvr(answer_text, ground_truth)", lambda w: (r"\boxed{1}", "1"), equals(1.0)),
    (
        "ch06.sequence_logprob(model, token_ids, prompt_len)",
        lambda w: (w.model, IDS[0], 1),
        lambda w, found: found.requires_grad and found.shape == (),
    ),
    (
        "ch06.compute_grpo_loss(model, tokenizer, example, device, num_rollouts=2, "
        "max_new_tokens=256, temperature=0.8, top_p=0.9)",
        lambda w: (*w.pair, ROWS[0], "cpu", 3, 4, 1.0, 1.0),
        lambda w, found: set(found) == GROUP_KEYS and len(found["samples"]) == 3,
    ),
    (
        "ch06.train_rlvr_grpo(model, tokenizer, math_data, device, steps=None, num_rollouts=2, "
        "max_new_tokens=256, temperature=0.8, top_p=0.9, lr=1e-5, checkpoint_every=50, "
        "checkpoint_dir='.', csv_log_path=None)",
        lambda w: (*w.pair, ROWS, "cpu", 2, 3, 4, 1.0, 1.0, 1e-3, 2, "saves", "log.csv"),
        is_step,
    ),
    (
        "ch06.save_checkpoint(model, checkpoint_dir, step, suffix='')",
        lambda w: (w.model, "saves", 50, "best"),
        equals(Path("saves/qwen3-0.6B-rlvr-grpo-step00050-best.pth")),
    ),
    (
        "ch06.append_csv_metrics("
        "csv_log_path, step_idx, total_steps, loss, reward_avg, avg_response_len)",
        lambda w: ("new.csv", 1, 2, 0.5, 0.25, 7.0),
        lines_of("new.csv", 2),
    ),
    # ---- chapter 7
    (
        "ch07.download_from_github(rel_path, out=None)",
        lambda w: ("ch07/metrics.bin", "new/mine.bin"),
        is_file("new/mine.bin"),
    ),
    (
        "ch07.moving_average(values, window_fraction=0.25)",
        lambda w: ([1, 3, 5, 7], 0.5),
        equals([1, 2, 4, 6]),
    ),
    (
        "ch07.plot_grpo_metrics(csv_path, columns, save_as=None)",
        lambda w: ("metrics.csv", ["reward_avg", "entropy_avg", "eval_acc"], "curves.png"),
        drawn(True, False, True, False),
    ),
    (
        "ch07.compute_advantage_stats(rewards_list)",
        lambda w: ([1.0, 0.0],),
        lambda w, found: found[0].shape == (2,) and found[1] == pytest.approx(0, abs=1e-6),
    ),
    (
        "ch07.sequence_logprob_and_entropy(model, token_ids, prompt_len)",
        lambda w: (w.model, IDS[0], 1),
        lambda w, found: found[0].requires_grad and found[1] > 0,
    ),
    (
        "ch07.reward_format("
        "token_ids, prompt_len, start_think_id=151667, end_think_id=151668)",
        lambda w: ([5, 8, 1, 9], 1, 8, 9),
        equals(1.0),
    ),
    # ---- appendix F
    (
        "appendix_f.predict_choice(model, tokenizer, prompt_fmt, max_new_tokens=8)",
        lambda w: (*w.pair, "abc", 4),
        equals(None),
    ),
    (
        "appendix_f.elo_ratings(vote_pairs, k_factor=32, initial_rating=1000)",
        lambda w: ([("one", "other")], 16, 100),
        equals({"one": 108, "other": 92}),
    ),
    # ---- utils
    (
        "utils.download_file(url, out_dir='.', backup_url=None)",
        lambda w: (w.url, "new", w.url),
        is_file("new/file.bin"),
    ),
]  # fmt: skip


def name_of(call):
    return call[0].partition("(")[0]


def documented(signature):
    """Function and {parameter: its default, or inspect.Parameter.empty}."""
    name, _, inside = signature.partition("(")
    names: dict = {}
    exec(f"def f({inside}: pass", {"torch": torch, "render_prompt": render_prompt}, names)
    module, *path = name.split(".")
    function = MODULES[module]
    for part in path:
        function = getattr(function, part)
    parameters = inspect.signature(names["f"]).parameters.values()
    return function, {parameter.name: parameter.default for parameter in parameters}


@pytest.mark.parametrize("way", ["by position", "by keyword", "without what has a default"])
@pytest.mark.parametrize("call", CALLS, ids=name_of)
def test_a_name_that_readers_import(world, call, way):
    signature, values_of, came_of_it = call
    function, parameters = documented(signature)
    values = values_of(world)
    assert len(values) == len(parameters)
    given = dict(zip(parameters, values, strict=True))
    torch.manual_seed(0)
    if way == "without what has a default":
        needed = {n: v for n, v in given.items() if parameters[n] is inspect.Parameter.empty}
        found = function(**needed)
    else:
        found = function(*values) if way == "by position" else function(**given)
    if inspect.isgenerator(found):
        found = list(found) if way != "without what has a default" else next(found)
    if way != "without what has a default":
        assert came_of_it(world, found)


@pytest.mark.parametrize("call", CALLS, ids=name_of)
def test_its_defaults_are_the_documented_ones(call):
    function, parameters = documented(call[0])
    ours = inspect.signature(function).parameters
    assert list(ours)[: len(parameters)] == list(parameters)
    for name, default in parameters.items():
        if default is not inspect.Parameter.empty:
            assert ours[name].default == default, name
    for name in list(ours)[len(parameters) :]:  # what is ours has a default, or is **options
        assert ours[name].default is not inspect.Parameter.empty or ours[name].kind.name == (
            "VAR_KEYWORD"
        )


def test_the_configuration_of_qwen3_06b():
    expected = {
        "vocab_size": 151_936, "context_length": 40_960, "emb_dim": 1024, "n_heads": 16,
        "n_layers": 28, "hidden_dim": 3072, "head_dim": 128, "qk_norm": True, "n_kv_groups": 8,
        "rope_base": 1_000_000.0, "dtype": torch.bfloat16,
    }  # fmt: skip
    assert expected.items() <= qwen3.QWEN_CONFIG_06_B.items()
    assert (ch07.THINK_TOKEN_ID, ch07.END_THINK_TOKEN_ID) == (151667, 151668)


def test_the_names_in_a_published_file():
    block = ["att.W_query.weight", "att.W_key.weight", "att.W_value.weight", "att.out_proj.weight"]
    block += ["att.q_norm.scale", "att.k_norm.scale", "norm1.scale", "norm2.scale"]
    block += ["ff.fc1.weight", "ff.fc2.weight", "ff.fc3.weight"]
    names = {f"trf_blocks.{layer}.{name}" for layer in range(2) for name in block}
    names |= {"tok_emb.weight", "final_norm.scale", "out_head.weight"}
    model = toy_model()
    assert set(model.state_dict()) == names
    for name in names:
        assert f"({name.split('.')[-2]}): " in repr(model)


def test_the_published_results_are_all_there():
    path = Path(__file__).resolve().parents[2] / "ch06" / "book_results.csv"
    rows = [line.rsplit(",", 2) for line in path.read_text(encoding="utf-8").splitlines()[1:]]
    tokens = {name.strip('"').partition(" (")[0]: float(tokens) for name, _, tokens in rows}
    assert len(tokens) == 10 and tokens["GRPO with KL, 50 steps"] == 910.33
    assert tokens["GRPO with KL, 100 steps"] == 1168.05
    assert tokens["Olmo 3 style, 50 steps"] == 601.61
    assert tokens["DeepSeek-V3.2 style, 100 steps"] == 676.96
