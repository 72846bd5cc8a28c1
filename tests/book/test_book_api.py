"""What the book's cells import: each name, its parameters in the documented order, their defaults.

That each does what it should is tested with its chapter: test_ch02.py and so on.
"""

import inspect
import re
from importlib import import_module

import pytest
import torch

from reasoning_from_scratch.problems import render_prompt

DOCUMENTED = {
    "qwen3": """
        Qwen3Model(cfg)
        Qwen3Model.forward(self, in_idx, cache=None)
        Qwen3Model.reset_kv_cache(self)
        KVCache(n_layers)
        KVCache.get(self, layer)
        KVCache.update(self, layer, value)
        KVCache.get_all(self)
        KVCache.reset(self)
        GroupedQueryAttention(cfg)
        FeedForward(cfg)
        TransformerBlock(cfg)
        RMSNorm(emb_dim, eps=1e-6, bias=False, qwen3_compatible=True)
        compute_rope_params(head_dim, theta_base=10_000, context_length=4096, dtype=torch.float32)
        apply_rope(x, cos, sin, offset=0)
        Qwen3Tokenizer(tokenizer_file_path='tokenizer-base.json', apply_chat_template=False,
            add_generation_prompt=False, add_thinking=False)
        Qwen3Tokenizer.encode(self, prompt, chat_wrapped=None)
        Qwen3Tokenizer.decode(self, ids)
        download_qwen3_small(kind='base', tokenizer_only=False, out_dir='.')
        download_qwen3_grpo_checkpoints(grpo_type='no_kl', step='00050', out_dir='.')
        download_qwen3_distill_checkpoints(distill_type='deepseek_r1', step='06682', out_dir='.')
        load_hf_weights_into_qwen(model, param_config, params)
    """,
    "ch02": """
        get_device(enable_tensor_cores=True)
        generate_text_basic(model, token_ids, max_new_tokens, eos_token_id=None)
        generate_text_basic_cache(model, token_ids, max_new_tokens, eos_token_id=None)
        generate_text_basic_stream(model, token_ids, max_new_tokens, eos_token_id=None)
        generate_text_basic_stream_cache(model, token_ids, max_new_tokens, eos_token_id=None)
        generate_stats(output_token_ids, tokenizer, start_time, end_time)
    """,
    "ch03": """
        load_model_and_tokenizer(which_model, device, use_compile, local_dir='qwen3')
        load_tokenizer_only(which_model, local_dir='qwen3')
        generate_text_stream_concat(model, tokenizer, prompt, device, max_new_tokens, verbose=False)
        get_last_boxed(text)
        extract_final_candidate(text, fallback='number_then_full')
        normalize_text(text)
        sympy_parser(expr)
        equality_check(expr_gtruth, expr_pred)
        split_into_parts(text)
        grade_answer(pred_text, gt_text)
        run_demos_table(tests)
        render_prompt(prompt)
        load_math500_test(local_path='math500_test.json', save_copy=True)
        mini_eval_demo(model, tokenizer, device)
        eta_progress_message(processed, total, start_time, show_eta=False, label='Progress')
        evaluate_math500_stream(model, tokenizer, device, math_data, out_path=None,
            max_new_tokens=512, verbose=False)
    """,
    "ch06": """
        load_math_train(local_path='math_train.json', save_copy=True)
        sample_response(model, tokenizer, prompt, device, max_new_tokens=512, temperature=0.8,
            top_p=0.9)
        reward_rlvr(answer_text, ground_truth)
        sequence_logprob(model, token_ids, prompt_len)
        compute_grpo_loss(model, tokenizer, example, device, num_rollouts=2, max_new_tokens=256,
            temperature=0.8, top_p=0.9)
        train_rlvr_grpo(model, tokenizer, math_data, device, steps=None, num_rollouts=2,
            max_new_tokens=256, temperature=0.8, top_p=0.9, lr=1e-5, checkpoint_every=50,
            checkpoint_dir='.', csv_log_path=None)
        save_checkpoint(model, checkpoint_dir, step, suffix='')
        append_csv_metrics(csv_log_path, step_idx, total_steps, loss, reward_avg, avg_response_len)
    """,
    "ch04": """
        generate_text_stream_concat_flex(model, tokenizer, prompt, device, max_new_tokens,
            verbose=False, generate_func=None)
        scale_logits_by_temperature(logits, temperature)
        generate_text_temp_stream_cache(model, token_ids, max_new_tokens, eos_token_id=None,
            temperature=0.0)
        top_p_filter(probas, top_p)
        generate_text_top_p_stream_cache(model, token_ids, max_new_tokens, eos_token_id=None,
            temperature=0.0, top_p=None)
        count_samples(probas, num_samples=1000, threshold=1, tokenizer=None)
        plot_scores_bar(next_token_logits, start=19_800, end=19_900, arrow=True,
            ylabel='Logit value')
        plot_logits_with_temperature(next_token_logits, start=19_800, end=19_900, T1=0.5, T2=5.0,
            temps=None)
        self_consistency_vote(model, tokenizer, prompt, device, num_samples=10, temperature=0.8,
            top_p=0.9, max_new_tokens=2048, show_progress=True, show_long_answer=False, seed=None)
    """,
    "ch05": """
        heuristic_score(answer, prompt=None, brevity_bonus=500.0, boxed_bonus=2.0,
            extract_bonus=1.0, fulltext_bonus=0.0)
        calc_next_token_probas(model, tokenizer, prompt, device, show=True)
        calc_next_token_logprobas(model, tokenizer, prompt, device, show=True)
        avg_logprob_answer(model, tokenizer, prompt, answer, device='cpu')
        make_critique_prompt(raw_prompt, draft)
        make_refine_prompt(raw_prompt, draft, critique)
        self_refinement_loop(model, tokenizer, raw_prompt, device, iterations=2,
            max_response_tokens=2048, max_critique_tokens=256, score_fn=None,
            prompt_renderer=render_prompt, prompt_suffix='', verbose=False, temperature=0.7,
            top_p=0.9)
    """,
    "ch07": """
        download_from_github(rel_path, out=None)
        moving_average(values, window_fraction=0.25)
        plot_grpo_metrics(csv_path, columns, save_as=None)
        compute_advantage_stats(rewards_list)
        sequence_logprob_and_entropy(model, token_ids, prompt_len)
        reward_format(token_ids, prompt_len, start_think_id=151667, end_think_id=151668)
    """,
    "ch08": """
        load_distill_data(local_path=None, partition='deepseek-r1-math-train', save_copy=True)
        format_distilled_answer(entry)
        load_reasoning_tokenizer(local_dir='qwen3')
        build_examples(data, tokenizer)
        compute_length(examples, answer_only=False)
        filter_examples_by_max_len(examples, max_len=2048)
        compute_example_loss(model, example, device)
        evaluate_examples(model, examples, device)
        train_distillation(model, train_examples, val_examples, device, epochs=2, lr=5e-6,
            grad_clip_norm=None, seed=123, log_every=50, checkpoint_dir='checkpoints',
            csv_log_path=None)
        save_checkpoint(model, checkpoint_dir, step, suffix='')
        append_csv_metrics(csv_log_path, epoch_idx, total_steps, train_loss, val_loss)
        plot_distill_metrics(csv_path='train_distill_metrics.csv')
    """,
    "appendix_f": """
        predict_choice(model, tokenizer, prompt_fmt, max_new_tokens=8)
        elo_ratings(vote_pairs, k_factor=32, initial_rating=1000)
    """,
    "utils": """
        download_file(url, out_dir='.', backup_url=None)
    """,
}
SIGNATURES = [
    (module, signature)
    for module, text in DOCUMENTED.items()
    for signature in re.findall(r"^ {8}(\w.*?\))$", text, flags=re.M | re.S)
]


@pytest.mark.parametrize("module, signature", SIGNATURES, ids=lambda part: part.partition("(")[0])
def test_a_name_has_the_documented_parameters(module, signature):
    """What is ours besides comes after them, and has a default or is **options."""
    name, _, inside = signature.partition("(")
    function = import_module(f"reasoning_from_scratch.{module}")
    for part in name.split("."):
        function = getattr(function, part)
    names: dict = {}
    exec(f"def f({inside}: pass", {"torch": torch, "render_prompt": render_prompt}, names)
    documented = list(inspect.signature(names["f"]).parameters.values())
    ours = list(inspect.signature(function).parameters.values())
    for its, other in zip(ours, documented, strict=False):
        assert its.name == other.name
        assert other.default is other.empty or its.default == other.default, its.name
    assert len(ours) >= len(documented)
    for its in ours[len(documented) :]:
        assert its.default is not its.empty or its.kind is its.VAR_KEYWORD
