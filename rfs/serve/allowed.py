"""Which options a call may have. Whatever else would change an answer is refused, typos included:
an option that is ignored without a word gives answers that nobody asked for."""

from collections.abc import Set

from reasoning_from_scratch.errors import UserError, did_you_mean
from rfs.serve.body import Body

SAMPLING = {
    "n", "max_tokens", "max_completion_tokens", "temperature", "top_p", "top_k", "seed", "stop",
    "stop_token_ids", "logprobs",
}  # fmt: skip
COMPLETION = SAMPLING | {"model", "prompt", "echo", "best_of", "stream", "stream_options"}
TALK = {"messages", "tools", "chat_template_kwargs"}
CHAT = SAMPLING | TALK | {
    "model", "top_logprobs", "tool_choice", "parallel_tool_calls", "stream", "stream_options",
}  # fmt: skip
STREAM_OPTIONS = {"include_usage"}

# Notes of the client about itself, and how the server is to go about it: no answer depends on them.
NO_EFFECT = {
    "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key",
    "prompt_cache_retention", "cache_salt", "priority", "request_id", "include_obfuscation",
    "routed_experts_prompt_start",
}  # fmt: skip
# These have a value that asks for what is done anyway.
ONLY: dict[str, tuple] = {
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
    "length_penalty": (1,),
    "min_p": (0,),
    "typical_p": (1,),
    "min_tokens": (0,),
    "logit_bias": ({},),
    "suffix": ("",),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "functions": ([],),
    "ignore_eos": (False,),
    "use_beam_search": (False,),
    "bad_words": ([],),
    "allowed_token_ids": ([],),
    "logits_processors": ([],),
    "include_stop_str_in_output": (False,),
    "continuous_usage_stats": (False,),
    "skip_special_tokens": (False,),
    "spaces_between_special_tokens": (True, False),
    "add_generation_prompt": (True,),
    "continue_final_message": (False,),
}
GRAMMAR = "no answer is forced into a form here: ask for the form in the prompt, and check"
THINKING = 'whether a model thinks is said as chat_template_kwargs, {"enable_thinking": false}'
INSTEAD = {
    **dict.fromkeys(("guided_json", "guided_regex", "guided_choice", "guided_grammar"), GRAMMAR),
    **dict.fromkeys(("structured_outputs", "grammar", "response_format"), GRAMMAR),
    **dict.fromkeys(("thinking", "enable_thinking", "reasoning_effort", "reasoning"), THINKING),
    "truncate_prompt_tokens": "cut the prompt yourself",
    "chat_template": "a call does not bring its own template: render it, and use /v1/completions",
}


def check_options(body: Body, known: Set[str]) -> None:
    """Refuses the first option that would have to change the answer and would not."""
    for key, value in body.values.items():
        if value is None or key in known or key in NO_EFFECT or value in ONLY.get(key, ()):
            continue
        instead = f": {INSTEAD[key]}" if key in INSTEAD else did_you_mean(key, known)
        raise UserError(f"{body.within}{key} is not supported{instead}")
