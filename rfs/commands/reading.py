"""From a command line to an object of options, with tyro: the help of each option, and one line
that explains a mistake."""

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
from rfs.commands.other_words import as_option, flags_of, option_name, takes_several

HELP, HELP_ALL = {"--help", "-h"}, "--help-all"
SEQUENCE_TYPES = (tuple, list, Sequence)
POSITIONAL = get_args(tyro.conf.Positional[str])[1]
PAIRS_REGISTRY = ConstructorRegistry()


@PAIRS_REGISTRY.primitive_rule
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
    """Reads a command line into an object of `kind`, a dataclass; or calls the function `kind` with
    it.

    `default`: an object with the values of options that are not given. If the class has a list
    FIRST, --help explains only these options, and --help-all all of them, in groups if the class
    has PARTS.
    """
    first, parts = getattr(kind, "FIRST", ()), getattr(kind, "PARTS", ())
    is_brief, count = bool(first) and not HELP.isdisjoint(args), len(flags_of(kind))
    words = ["--help" if word == HELP_ALL else word for word in args]
    parsed_type = kind
    if isinstance(kind, type) and is_dataclass(kind):
        shown_first = first if is_brief else ()
        parsed_type = with_help(kind, default, shown_first, not HELP.isdisjoint(words))
        if parts and HELP_ALL in args:
            parsed_type = grouped_by_part(parsed_type, parts)
    if is_brief:
        about = (
            f"{about}\n\nThese {len(first)} options matter most. {prog} {HELP_ALL} explains all "
            f"{count}."
        )
    stderr, function = io.StringIO(), None if isinstance(kind, type) else kind
    try:
        with redirect_stderr(stderr):
            read = tyro.cli(
                deferred(function) if function else parsed_type,
                args=words,
                prog=prog,
                description=about,
                registry=PAIRS_REGISTRY,
                config=(tyro.conf.OmitArgPrefixes, *config),
            )
    except SystemExit as end:
        if end.code:
            explain_mistake(words, kind)
            sys.stderr.write(stderr.getvalue())
        raise
    return read() if function else kind(**vars(read))


def deferred(function: Callable) -> Callable:
    """Looks like `function` to tyro, but only returns the call, which is made later: what it writes
    to stderr is for the user."""

    @wraps(function)
    def call(*args: Any, **options: Any) -> Callable:
        return partial(function, *args, **options)

    return call


# --- help


def with_help(
    kind: type, values: Any = None, first: Sequence[str] = (), with_texts: bool = True
) -> Any:
    """A dataclass with the options of the dataclass `kind`, annotated with what tyro shows of them.
    `values`: an object with defaults that replace the class's own. `first`: only these, in this
    order."""
    texts, flags = field_texts(kind) if with_texts else {}, flags_of(kind)
    hints, rows = hints_of(kind), list[Any]()
    items = {item.name: item for item in fields(kind) if option_name(item.name) in flags}
    for item in [items[name] for name in first or items]:
        hint = hints[item.name]
        arg: dict[str, Any] = {"metavar": metavar(hint) or positional_mark(item, hint)}
        if option_name(item.name) != item.name:
            arg["name"] = option_name(item.name)
        if item.name in texts:
            arg["help"] = texts[item.name]
        arg["help_behavior_hint"] = partial(default_text, texts.get(item.name, ""))
        if values is not None:
            default = field(default_factory=partial(getattr, values, item.name))
        else:
            default = field(default=item.default, default_factory=item.default_factory)
        rows.append((item.name, Annotated[hint, tyro.conf.arg(**arg)], default))
    return make_dataclass(kind.__name__, rows, namespace={"__doc__": kind.__doc__})


def grouped_by_part(kind: type, parts: Sequence[type]) -> Any:
    """A dataclass with the same fields in groups, one for each of its parts; fields that belong to
    no part come first."""
    rest = {item.name: item for item in fields(kind)}
    groups = list[Any]()
    for part in parts:
        items = [rest.pop(item.name) for item in fields(part) if item.name in rest]
        group = dataclass_of(items, part)
        groups.append((part.__name__.lower(), group, field(default_factory=group)))
    return dataclass_of(rest.values(), kind, groups)


def dataclass_of(items: Iterable[Field], like: type, more: Sequence[Any] = ()) -> type:
    """A dataclass with these fields of another, and `more`."""
    rows = [
        (item.name, item.type, field(default=item.default, default_factory=item.default_factory))
        for item in items
    ]
    return make_dataclass(like.__name__, [*rows, *more], namespace={"__doc__": like.__doc__})


def hints_of(kind: type) -> dict[str, Any]:
    """The types of its fields, without their annotations (facts.py) except for Positional."""
    annotated, bare = get_type_hints(kind, include_extras=True), get_type_hints(kind)
    return {name: hint if is_positional(hint) else bare[name] for name, hint in annotated.items()}


def default_text(text: str, value: str) -> str:
    """What follows an option's text: its default, unless the text has it or there is none."""
    if value in ("None", "", "''"):
        return ""
    return f"(here: {value})" if "(default" in text else f"(default: {value})"


def field_texts(kind: type) -> dict[str, str]:
    """The text below each field of a dataclass, as one line."""
    texts: dict[str, str] = {}
    for base in reversed([base for base in kind.__mro__ if is_dataclass(base)]):
        tree = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        for item, after in pairwise(tree.body if isinstance(tree, ast.ClassDef) else []):
            match item, after:
                case ast.AnnAssign(ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                    texts[name] = " ".join(text.split())
    return texts


def metavar(hint: Any) -> str | None:
    """What stands for an option's value: FLOAT, {a,b}, STR ...; None leaves it to tyro."""
    if is_positional(hint):
        return None
    placeholders = [placeholder(kind) for kind in alternatives(hint) if kind is not bool]
    return "|".join(placeholders) if placeholders and all(placeholders) else None


def is_positional(hint: Any) -> bool:
    return get_origin(hint) is Annotated and POSITIONAL in hint.__metadata__


def positional_mark(item: Field, hint: Any) -> str | None:
    """How help shows a positional option: MODEL, [RUNS ...]."""
    if not is_positional(hint):
        return None
    name = option_name(item.name).upper() + " ..." * takes_several(hint)
    return name if is_required(item) else f"[{name}]"


def is_required(item: Field) -> bool:
    return item.default is MISSING and item.default_factory is MISSING


def placeholder(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return "{" + ",".join(get_args(kind)) + "}"
    if get_origin(kind) in SEQUENCE_TYPES:
        return f"{placeholder(get_args(kind)[0])} ..."
    return {int: "INT", float: "FLOAT", str: "STR", Path: "PATH"}.get(kind, "")


def alternatives(hint: Any) -> list[Any]:
    """The types that a value may have, without None."""
    options = get_args(hint) if get_origin(hint) in (Union, UnionType) else [hint]
    return [option for option in options if option is not type(None)]


# --- mistakes


def explain_mistake(args: Sequence[str], kind: Any) -> None:
    """Raises one line about a mistake; returns if only tyro can explain it."""
    kinds, (loose, *named) = flags_of(kind), split_by_option(args)
    for flag, values in named:
        if mistake := value_mistake(flag, values, kinds):
            raise UserError(mistake)
    if not isinstance(kind, type) or not is_dataclass(kind):
        return
    hints = hints_of(kind)
    given, unused = {field_of(flag) for flag, _ in named}, len(loose[1])  # words before any option
    for item in fields(kind):
        mark = positional_mark(item, hints[item.name])
        unused -= mark is not None
        is_given = unused >= 0 if mark else option_name(item.name) in given
        if is_required(item) and not is_given:
            text = field_texts(kind)[item.name].rstrip(".")
            raise UserError(f"{mark or as_option(option_name(item.name))} is missing: {text}")
    if unused > 0:
        raise UserError(f"{loose[1][-unused]!r} is neither an option nor the value of one")


def split_by_option(args: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Each option with the words after it. The first one is "": words before any option."""
    groups: list[tuple[str, list[str]]] = [("", [])]
    for word in args:
        if word.startswith("--") and len(word) > 2:
            flag, equals, value = word.partition("=")
            groups.append((flag, [value] if equals else []))
        else:
            groups[-1][1].append(word)
    return groups


def field_of(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")


def value_mistake(flag: str, values: Sequence[str], kinds: Mapping[str, Any]) -> str:
    """Explains what is wrong with the values of an option; "" if nothing is."""
    hint = kinds.get(field_of(flag), bool)
    if hint is bool:
        return f"{flag} takes no value, but {values[0]!r} follows it" if values else ""
    options = alternatives(hint)
    several = takes_several(hint)
    expected = " or ".join(dict.fromkeys(map(type_in_words, options)))
    if not values:
        return "" if several else f"{flag} needs a value: {expected}"
    if len(values) > 1 and not several:
        return f"{flag} takes one value, but {values[1]!r} follows it"
    for value in values:
        if value != "None" and not any(accepts(option, value) for option in options):
            return f"{flag} {value}: expected {expected}"
    return ""


def accepts(kind: Any, value: str) -> bool:
    kind = get_args(kind)[0] if get_origin(kind) in SEQUENCE_TYPES else kind
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    try:
        return kind not in (int, float) or kind(value) is not None
    except ValueError:
        return False


def type_in_words(kind: Any) -> str:
    """What a value of that type is."""
    if get_origin(kind) is Literal:
        return f"one of {', '.join(get_args(kind))}"
    if get_origin(kind) in SEQUENCE_TYPES:
        return type_in_words(get_args(kind)[0])
    return {int: "a whole number", float: "a number", Path: "a path"}.get(kind, "a text")
