"""From a command line to an object of options, with tyro: what help says of each option, and one
line about what was wrong."""

import ast
import inspect
import io
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import MISSING, Field, field, fields, is_dataclass, make_dataclass
from functools import partial, wraps
from itertools import pairwise
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.rewards import parse_weights
from rfs.commands.other_words import dashed, flags_of, shown, takes_several

HELP, HELP_ALL = {"--help", "-h"}, "--help-all"
SEVERAL = (tuple, list, Sequence)
A_PLACE = get_args(tyro.conf.Positional[str])[1]
OF_PAIRS = ConstructorRegistry()


@OF_PAIRS.primitive_rule
def reward_parts_spec(kind: PrimitiveTypeInfo) -> PrimitiveConstructorSpec | None:
    """On the command line: --reward-parts correct=1 format=0.5"""
    if kind.type_origin is not dict:
        return None
    return PrimitiveConstructorSpec(
        nargs="*",
        metavar="PART=WEIGHT ...",
        instance_from_str=parse_weights,
        is_instance=lambda value: isinstance(value, dict),
        str_from_instance=lambda parts: [f"{name}={weight:g}" for name, weight in parts.items()],
    )


def read(
    kind: Any,
    args: Sequence[str],
    *,
    prog: str,
    about: str | None,
    default: Any = None,
    config: Sequence[Any] = (),
) -> Any:
    """What a command line says, as an object of `kind`, a dataclass; or what the function `kind`
    returns for it.

    `default`: an object with the values of options that are not given. Of a class with a list
    FIRST, --help explains only these options, and --help-all all of them, in groups if the class
    has PARTS.
    """
    first, parts = getattr(kind, "FIRST", ()), getattr(kind, "PARTS", ())
    brief, count = bool(first) and not HELP.isdisjoint(args), len(flags_of(kind))
    words = ["--help" if word == HELP_ALL else word for word in args]
    asked = kind
    if isinstance(kind, type) and is_dataclass(kind):
        asked = dressed(kind, default, first if brief else (), not HELP.isdisjoint(words))
        if parts and HELP_ALL in args:
            asked = in_groups(asked, parts)
    if brief:
        about = (
            f"{about}\n\nThese {len(first)} options matter most. {prog} {HELP_ALL} explains all "
            f"{count}."
        )
    said, function = io.StringIO(), None if isinstance(kind, type) else kind
    try:
        with redirect_stderr(said):
            read = tyro.cli(
                called_later(function) if function else asked,
                args=words,
                prog=prog,
                description=about,
                registry=OF_PAIRS,
                config=(tyro.conf.OmitArgPrefixes, *config),
            )
    except SystemExit as end:
        if end.code:
            explain(words, kind)
            sys.stderr.write(said.getvalue())
        raise
    return read() if function else kind(**vars(read))


def called_later(function: Callable) -> Callable:
    """To tyro it looks like `function`, but only returns the call: what that writes to stderr is
    for the user."""

    @wraps(function)
    def call(*args: Any, **options: Any) -> Callable:
        return partial(function, *args, **options)

    return call


# --- what help says


def dressed(kind: type, values: Any = None, first: Sequence[str] = (), helps: bool = True) -> Any:
    """A dataclass with the options of the dataclass `kind`, which say to tyro what help shows of
    them. `values`: an object with defaults that replace the class's own. `first`: only these, in
    this order."""
    texts, flags = descriptions(kind) if helps else {}, flags_of(kind)
    hints, rows = hints_of(kind), list[Any]()
    items = {item.name: item for item in fields(kind) if shown(item.name) in flags}
    for item in [items[name] for name in first or items]:
        hint = hints[item.name]
        looks: dict[str, Any] = {"metavar": metavar(hint) or in_place(item, hint)}
        if shown(item.name) != item.name:
            looks["name"] = shown(item.name)
        if item.name in texts:
            looks["help"] = texts[item.name]
        looks["help_behavior_hint"] = partial(usual_value, texts.get(item.name, ""))
        if values is not None:
            usual = field(default_factory=partial(getattr, values, item.name))
        else:
            usual = field(default=item.default, default_factory=item.default_factory)
        rows.append((item.name, Annotated[hint, tyro.conf.arg(**looks)], usual))
    return make_dataclass(kind.__name__, rows, namespace={"__doc__": kind.__doc__})


def in_groups(kind: type, parts: Sequence[type]) -> Any:
    """A dataclass with the same fields in groups, one for each of its parts; what belongs to none
    comes first."""
    left = {item.name: item for item in fields(kind)}
    groups = list[Any]()
    for part in parts:
        own = [left.pop(item.name) for item in fields(part) if item.name in left]
        group = made_of(own, part)
        groups.append((part.__name__.lower(), group, field(default_factory=group)))
    return made_of(left.values(), kind, groups)


def made_of(items: Iterable[Field], like: type, more: Sequence[Any] = ()) -> type:
    """A dataclass with these fields of another, and `more`."""
    rows = [
        (item.name, item.type, field(default=item.default, default_factory=item.default_factory))
        for item in items
    ]
    return make_dataclass(like.__name__, [*rows, *more], namespace={"__doc__": like.__doc__})


def hints_of(kind: type) -> dict[str, Any]:
    """The types of its fields, without what else they say of themselves (facts.py), but with their
    places, if they are words without a name."""
    marked, plain = get_type_hints(kind, include_extras=True), get_type_hints(kind)
    return {name: marked[name] if is_in_place(marked[name]) else plain[name] for name in plain}


def usual_value(text: str, value: str) -> str:
    """What follows an option's text: its default, unless the text has told it or there is none."""
    if value in ("None", "", "''"):
        return ""
    return f"(here: {value})" if "(default" in text else f"(default: {value})"


def descriptions(kind: type) -> dict[str, str]:
    """The text below each field of a dataclass, as one line."""
    found: dict[str, str] = {}
    for one in reversed([one for one in kind.__mro__ if is_dataclass(one)]):
        tree = ast.parse(textwrap.dedent(inspect.getsource(one))).body[0]
        for item, after in pairwise(tree.body if isinstance(tree, ast.ClassDef) else []):
            match item, after:
                case ast.AnnAssign(ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                    found[name] = " ".join(text.split())
    return found


def metavar(hint: Any) -> str | None:
    """What stands for an option's value: FLOAT, {a,b}, STR ...; None: as tyro has it."""
    if is_in_place(hint):
        return None
    kinds = [one for one in alternatives(hint) if one is not bool]
    words = [placeholder(one) for one in kinds]
    return "|".join(words) if words and all(words) else None


def is_in_place(hint: Any) -> bool:
    """Whether the option has no name on a command line, but a place."""
    return get_origin(hint) is Annotated and A_PLACE in hint.__metadata__


def in_place(item: Field, hint: Any) -> str | None:
    """How its place is marked: MODEL, [RUNS ...]."""
    if not is_in_place(hint):
        return None
    name = shown(item.name).upper() + " ..." * takes_several(hint)
    return name if is_required(item) else f"[{name}]"


def is_required(item: Field) -> bool:
    return item.default is MISSING and item.default_factory is MISSING


def placeholder(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return "{" + ",".join(get_args(kind)) + "}"
    if get_origin(kind) in SEVERAL:
        return f"{placeholder(get_args(kind)[0])} ..."
    return {int: "INT", float: "FLOAT", str: "STR", Path: "PATH"}.get(kind, "")


def alternatives(hint: Any) -> list[Any]:
    """The types that a value may have, without None."""
    options = get_args(hint) if get_origin(hint) in (Union, UnionType) else [hint]
    return [one for one in options if one is not type(None)]


# --- what was wrong


def explain(args: Sequence[str], kind: Any) -> None:
    """Raises one line about a mistake; returns if only tyro knows what is wrong."""
    kinds, (loose, *named) = flags_of(kind), grouped(args)
    for flag, values in named:
        if fault := fault_of(flag, values, kinds):
            raise UserError(fault)
    if not isinstance(kind, type) or not is_dataclass(kind):
        return
    hints = hints_of(kind)
    given, words = {option_of(flag) for flag, _ in named}, len(loose[1])
    for item in fields(kind):
        mark = in_place(item, hints[item.name])
        words -= mark is not None
        there = words >= 0 if mark else shown(item.name) in given
        if is_required(item) and not there:
            text = descriptions(kind)[item.name].rstrip(".")
            raise UserError(f"{mark or dashed(shown(item.name))} is missing: {text}")
    if words > 0:
        raise UserError(f"{loose[1][-words]!r} is neither an option nor the value of one")


def grouped(args: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Each option with the words after it. The first one is "": words before any option."""
    groups: list[tuple[str, list[str]]] = [("", [])]
    for word in args:
        if word.startswith("--") and len(word) > 2:
            flag, equals, value = word.partition("=")
            groups.append((flag, [value] if equals else []))
        else:
            groups[-1][1].append(word)
    return groups


def option_of(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")


def fault_of(flag: str, values: Sequence[str], kinds: Mapping[str, Any]) -> str:
    """What is wrong with the values of an option; "" if nothing is."""
    hint = kinds.get(option_of(flag), bool)
    if hint is bool:
        return f"{flag} takes no value, but {values[0]!r} follows it" if values else ""
    options = alternatives(hint)
    several = takes_several(hint)
    wanted = " or ".join(dict.fromkeys(map(in_words, options)))
    if not values:
        return "" if several else f"{flag} needs a value: {wanted}"
    if len(values) > 1 and not several:
        return f"{flag} takes one value, but {values[1]!r} follows it"
    for value in values:
        if value != "None" and not any(accepts(option, value) for option in options):
            return f"{flag} {value}: expected {wanted}"
    return ""


def accepts(kind: Any, value: str) -> bool:
    kind = get_args(kind)[0] if get_origin(kind) in SEVERAL else kind
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    try:
        return kind not in (int, float) or kind(value) is not None
    except ValueError:
        return False


def in_words(kind: Any) -> str:
    """What a value of that type is."""
    if get_origin(kind) is Literal:
        return f"one of {', '.join(get_args(kind))}"
    if get_origin(kind) in SEVERAL:
        return in_words(get_args(kind)[0])
    return {int: "a whole number", float: "a number", Path: "a path"}.get(kind, "a text")
