"""The tiny model's tokenizer: byte-level BPE cut like Qwen3's, with Qwen3's special tokens; and the
base models' chat template."""

from collections.abc import Iterable

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, trainers
from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split

from reasoning_from_scratch.problems import render_prompt
from reasoning_from_scratch.tokenizer import END_OF_TEXT

# How Qwen splits text before merging: words with their space, every digit by itself.
QWEN_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|object_ref_start|>",
    "<|object_ref_end|>",
    "<|box_start|>",
    "<|box_end|>",
    "<|quad_start|>",
    "<|quad_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
# Qwen3 keeps these when special tokens are skipped in decoding.
MARKUP_TOKENS = (
    "<tool_call>",
    "</tool_call>",
    "<|fim_prefix|>",
    "<|fim_middle|>",
    "<|fim_suffix|>",
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
)
# The generator's world has few words; with these the tokenizer also encodes the chat template and
# ordinary sentences in few tokens.
COMMON_WORDS = """
user system assistant think thought answer question problem solution step first second then next
last because therefore so thus since hence wait check again correct wrong right mistake let us me
we you they he she it this that these those there here now when where why how which who whom whose
is are was were be been being am have has had do does did done will would can could may might must
should shall not no yes maybe all any some none each every both few many much most more less least
good bad better best new old large small big little long short high low young early late same other
another one two three four five six seven eight nine ten hundred thousand half third quarter whole
part number sum product difference quotient result total value equal equals greater than word
sentence line text write read say tell ask give take make get go come see look know mean want need
use find keep put turn start stop begin end try help show play run move live work learn teach
understand remember forget explain review improve critique draft feedback concise clear final
person people man woman child boy girl friend school house home city country world water food day
night week month year hour minute time morning evening today tomorrow yesterday up down in out on
off over under above below before after between through during without within about around against
""".split()


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> Tokenizer:
    """Learn the merges from texts; the special tokens come last, as in Qwen3."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = Sequence(
        [
            Split(Regex(QWEN_SPLIT), "isolated"),
            ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    learned = vocab_size - len(SPECIAL_TOKENS) - len(MARKUP_TOKENS)
    trainer = trainers.BpeTrainer(
        vocab_size=learned, initial_alphabet=ByteLevel.alphabet(), show_progress=False
    )
    ordinary = [" ".join(COMMON_WORDS), " ".join(w.capitalize() for w in COMMON_WORDS)]
    tokenizer.train_from_iterator([*texts, *ordinary], trainer)
    for tokens, special in ((SPECIAL_TOKENS, True), (MARKUP_TOKENS, False)):
        tokenizer.add_tokens([AddedToken(t, special=special, normalized=False) for t in tokens])
    return tokenizer


def book_chat_template() -> str:
    """A conversation in the book's prompt, for models that were trained on nothing else: programs
    that send a system message or a second question get an answer, if seldom a good one. A single
    question gives exactly the prompt."""
    before, after = render_prompt("{}").split("{}")
    lines = [
        "{#- These models learned no conversation. This puts one into the prompt that they were",
        "    trained on, each question anew; a single question is exactly that prompt. -#}",
        "{%- for message in messages -%}",
        "{%- if message['role'] == 'system' -%}",
        "{{- message['content'] + '\\n\\n' -}}",
        "{%- elif message['role'] == 'user' -%}",
        f"{{{{- {before!r} + message['content'] + {after!r} -}}}}",
        "{%- elif message['role'] == 'assistant' -%}",
        f"{{{{- message['content'] + {END_OF_TEXT!r} -}}}}",
        "{%- else -%}",
        "{{- raise_exception('there is no place for the role ' + message['role']) -}}",
        "{%- endif -%}",
        "{%- endfor -%}",
    ]
    return "\n".join(lines) + "\n"
