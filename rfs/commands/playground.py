"""`rfs playground`: a page that runs the tiny models in a browser, and trains one there."""

import base64
import hashlib
import json
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files.disk import disk_errors_as, replacing
from reasoning_from_scratch.problems import (
    PLACEHOLDER,
    apply_prompt_format,
    problem_prompt,
    prompt_format_of,
    render_prompt,
)
from reasoning_from_scratch.recipes import RECIPES
from reasoning_from_scratch.text import counted, evenly_spaced, visible
from reasoning_from_scratch.tiny.guessing import MOST, TOKENS, guess_problem, guess_problems
from reasoning_from_scratch.tiny.ways import ANSWER_TOKENS
from reasoning_from_scratch.tiny.world import (
    PART,
    THINGS,
    known_parts,
    known_words,
    opening_words,
)
from reasoning_from_scratch.tokenizer import stop_ids_of
from rfs.commands.options import PlaygroundOptions
from rfs.files.models import load_model_and_tokenizer
from rfs.files.saved_models import read_index, run_and_save
from rfs.report.pages import asset, page_style, templates
from rfs.run.options import configure
from rfs.tasks.problem_sets import load_problems

WORKER_FILES = (
    "kernels.wasm.js", "kernels.js", "qwen3.js", "tokenizer.js", "sampling.js", "environments.js",
    "grpo.js", "ways.js", "worker.js",
)  # fmt: skip
PAGE_FILES = ("grpo.js", "ways.js", "page.js")
GAME_FILE = "guess.js"  # the page's part about the game, where there are players
MAX_PARAMETERS = 8_000_000  # a larger model would make the page too heavy for browsers
TRAINING_PROBLEMS = 200
# Bits per weight. With 17 the page's log-probabilities match the model's to 0.001; with 16 they do
# not. With 10 they are those of a slightly different model, closer to it than bfloat16 would be,
# and a page of docs/explore loads in 3 MB.
PAGE_BITS, ENGINE_BITS = 17, 10
EXPLORED = "models tokenizer train recipes".split()  # what the pages of docs/explore read
WATCHED = 2  # test problems that train.html shows after each step
ABOUT = {
    "tiny-base": "before GRPO",
    "tiny-grpo": "after the quickstart",
    "tiny-grpo-longer": "after the longer run",
    "tiny-player": "before GRPO",
    "tiny-player-grpo": "after GRPO",
}
# As in training; chapter 7's README has the command.
GAME = {"max_turns": 6} | TOKENS
RUN_SAVES = 6  # of a run with more saves, this many are taken, evenly spaced
# What qwen3.js computes; other families of models differ in one of these.
QWEN3 = {"qk_norm": True, "qkv_bias": False, "norm_eps": 1e-6, "rope_scaling": None}
CONFIG = (
    "vocab_size context_length emb_dim n_heads n_layers hidden_dim head_dim n_kv_groups "
    "rope_base tie_embeddings"
).split()
LOSS = (
    "advantage objective aggregate clip_low clip_high dro_beta divergence_limit grad_clip "
    "temperature top_p train_temperature reward_parts conditional_format overlong_penalty "
    "length_constant"
).split()


class Entry(NamedTuple):
    """A model of the page."""

    name: str
    step: int | None  # of a run
    source: str  # a model's name or folder, or RUN@SAVE
    plays: bool = False  # a player of part 5


def playground(options: PlaygroundOptions) -> int:
    """Writes one page with models, problems, recipes and all code in it."""
    entries = page_entries(options)
    page = build_page(entries)
    out = Path(options.out)
    with disk_errors_as(f"cannot write {out}", "choose another --out"):
        if out.exists() and not out.is_file():
            raise UserError(f"{out} exists and is not a file; choose a name such as mine.html")
        with replacing(out) as temporary:
            temporary.write_text(page, encoding="utf-8", newline="\n")
    contents = f"{counted(len(entries), 'model')}, {len(page) / 1e6:.1f} MB"
    print(visible(f"{out}: {contents}; open it in a browser"))
    return 0


def page_entries(options: PlaygroundOptions) -> list[Entry]:
    entries = [Entry(Path(name).name, None, name) for name in options.models]
    if options.run:
        entries += run_entries(options.run)
    if not entries:
        raise UserError("nobody could answer on that page: name a model, --models tiny-base")
    return entries + [Entry(Path(name).name, None, name, plays=True) for name in options.players]


def run_entries(name: str) -> list[Entry]:
    """The saves of a run."""
    run, save = run_and_save(name)
    if run is None or save is not None:
        raise UserError(f"--run {name} is not a run folder: give the folder that rfs train wrote")
    saves = evenly_spaced(read_index(run), RUN_SAVES)
    if not saves:
        raise UserError(f"{run} is a run that has saved nothing yet; train with --save-every")
    return [Entry(run.name, save.batch, f"{run}@{save.name}") for save in saves]


def build_page(entries: list[Entry], book: str = "") -> str:
    """The page's text. `book`: the address of the book that it belongs to."""
    return render_page(*page_data(entries), book)


def engine_script(model: str = "tiny-base") -> str:
    """A script for those pages of docs/explore that run a model: the worker, and all the data that
    they give it."""
    data, (weights,) = page_data([Entry(Path(model).name, None, model)], ENGINE_BITS)
    data = {key: data[key] for key in EXPLORED} | {"watched": data["test"][:WATCHED]}
    _, worker = scripts(players=False)
    engine = {"data": data, "weights": weights, "worker": worker}
    return f"const ENGINE = {json.dumps(engine)};\n"


def page_data(entries: list[Entry], bits: int = PAGE_BITS) -> tuple[dict, list[str]]:
    """A page's data about its models, tokenizer, problems and recipes; and the weights in base64,
    with `bits` bits each."""
    models, tokenizer_file = [], None
    for entry in entries:
        model, tokenizer = load_model_and_tokenizer(entry.source)
        count = sum(parameter.numel() for parameter in model.parameters())
        if count > MAX_PARAMETERS:
            raise UserError(
                f"{entry.source} has {count / 1e6:.0f} million parameters; the page is for tiny "
                f"models with at most {MAX_PARAMETERS / 1e6:.0f} million"
            )
        if any(model.cfg.get(key, usual) != usual for key, usual in QWEN3.items()):
            raise UserError(f"{entry.source} is not a Qwen3, and the page computes no other model")
        file = json.loads(tokenizer._tok.to_str())
        if tokenizer_file not in (None, file):
            first = entries[0].source
            raise UserError(f"{entry.source} has another tokenizer than {first}; make two pages")
        tokenizer_file = file
        models.append(model_data(entry, model, tokenizer, bits))
    data = {
        "models": [about for about, _ in models],
        "tokenizer": {
            "model": {key: tokenizer_file["model"][key] for key in ("vocab", "merges")},
            "added_tokens": [
                {key: token[key] for key in ("content", "id")}
                for token in tokenizer_file["added_tokens"]
            ],
        },
        "test": problem_rows("tiny-test"),
        "longer": problem_rows("tiny-longer"),
        "train": problem_rows("tiny", TRAINING_PROBLEMS),
        "game": GAME | {"most": MOST, "numbers": [int(p.answer) for p in guess_problems()]},
        "read": {
            "words": sorted(known_words()),
            "opening": sorted(opening_words()),
            "things": THINGS,
            "parts": sorted(known_parts()),
        },
        "part_size": PART,
        "recipes": recipe_rows(),
        "max_new_tokens": ANSWER_TOKENS,
    }
    return data, [weights for _, weights in models]


def model_data(entry: Entry, model, tokenizer, bits: int) -> tuple[dict, str]:
    """What the page must know about a model, and its weights in base64. Its prompt is that of its
    training, if its folder says which."""
    asked = prompt_format_of(tokenizer)
    if asked and asked.stop:
        raise UserError(
            f"{entry.source} was trained with --stop {asked.stop!r}, and the page ends answers at "
            "stop tokens only"
        )
    prompt = (apply_prompt_format(asked, tokenizer) if asked else render_prompt)(PLACEHOLDER)
    if tokenizer.apply_chat_template:
        prompt = tokenizer.wrap_chat(prompt)
    index: list[list] = []
    parts: list[np.ndarray] = []
    for tensor_name, tensor in model.state_dict().items():
        if tensor_name == "out_head.weight" and model.cfg["tie_embeddings"]:
            continue
        index.append([tensor_name, list(tensor.shape)])
        scales, integers = quantized(tensor.float().numpy(), bits)
        parts += [scales, packed_bits(integers, bits)]
    about = {
        "name": entry.name,
        "step": entry.step,
        "about": ABOUT.get(entry.name),
        "cfg": {key: model.cfg[key] for key in CONFIG},
        "index": index,
        "bits": bits,
        "prompt": prompt.split(PLACEHOLDER),  # the texts around the problem
        "stop_ids": sorted(stop_ids_of(tokenizer)),
    }
    if entry.plays:
        about["game"] = game_data(tokenizer)
    return about, base64.b64encode(b"".join(part.tobytes() for part in parts)).decode()


def game_data(tokenizer) -> dict:
    """A player's prompt at the beginning of a game, and the text around a reply."""
    placeholder = "REPLY"
    prompt = problem_prompt(guess_problem(1))  # the same for every number
    if tokenizer.apply_chat_template:
        prompt = tokenizer.wrap_chat(prompt)
    return {
        "prompt": prompt,
        "reply": tokenizer.reply_turn(placeholder).split(placeholder),
        "end_of_turn": tokenizer.eos_token_id,
    }


def quantized(tensor: np.ndarray, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """A scale for each row, float32, and the rows as integers with `bits` bits. Each number of a
    vector is a row of its own, so it loses nothing.

    With 17 bits a weight's error is at most 1/131,070 of the largest weight of its row, about an
    eighth of what half precision would lose; with 10 bits at most 1/1,022.
    """
    rows = tensor.reshape(-1, tensor.shape[-1]) if tensor.ndim > 1 else tensor[:, None]
    largest = 2 ** (bits - 1) - 1
    scales = np.maximum(np.abs(rows).max(axis=1), 1e-30) / largest
    integers = np.round(rows / scales[:, None])
    return scales.astype("<f4"), integers.astype("<i4")


def packed_bits(integers: np.ndarray, bits: int) -> np.ndarray:
    """Integers packed one after the other, highest bit first, eight bits to a byte."""
    places = np.arange(bits - 1, -1, -1)
    return np.packbits((integers.reshape(-1, 1) >> places & 1).astype(bool))


def problem_rows(name: str, limit: int | None = None) -> list[list[str]]:
    """[problem, answer, type, level], in the order in which evaluations number them."""
    problems = load_problems(name, limit=limit)
    return [[p.problem, p.answer, p.type, p.level.removeprefix("Level ")] for p in problems]


def recipe_rows() -> dict[str, dict]:
    """What the page needs of each recipe. Those with a KL term or with an advantage for each part
    of the reward are omitted: on one group, at its first pass, a KL term is 0 anyway. So are the
    one that learns solutions, since the page samples, and the one that trains on a part of each
    group, since the page trains on all of it."""
    rows = {}
    for name, recipe in RECIPES.items():
        config = configure(name, model="tiny-base", max_new_tokens=ANSWER_TOKENS)
        unsupported = config.advantage_per_part or config.is_supervised or config.train_rollouts
        if config.kl == "none" and not unsupported:
            values = {key: getattr(config, key) for key in LOSS}
            values["length_constant"] = config.length_constant or ANSWER_TOKENS
            rows[name] = values | {"about": recipe.about}
    return rows


def read_source(name: str) -> str:
    return (files("rfs") / "playground" / name).read_text("utf-8")


def scripts(players: bool) -> tuple[str, str]:
    """The page's own script, and the text that its worker is made of."""
    page_files = (*PAGE_FILES, GAME_FILE) if players else PAGE_FILES
    page = [asset("percent.js"), *map(read_source, page_files)]
    return "\n".join(page), "\n".join(map(read_source, WORKER_FILES))


def render_page(data: dict, weights: list[str], book: str) -> str:
    """One file. Only the script with this hash may run; everything else is data."""
    players = any("game" in model for model in data["models"])
    page_script, worker_script = scripts(players)
    digest = base64.b64encode(hashlib.sha256(page_script.encode()).digest()).decode()
    page = templates("rfs", "playground").get_template("page.html")
    return page.render(
        policy=(
            f"default-src 'none'; script-src 'sha256-{digest}' 'wasm-unsafe-eval' blob:; "
            "worker-src blob:; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
            "form-action 'none'"
        ),
        style=Markup(page_style() + read_source("style.css")),
        script=Markup(page_script),
        worker=Markup(worker_script),
        data=data,
        players=players,
        book=book,
        weights=[Markup(text) for text in weights],
    )
