"""A tool in words: what the model is told of a method, and whether a call fits that.

    def price(self, item: str, count: int = 1) -> str:
        '''Says what something costs.

        Args:
            item: What to buy.
            count: How many of it.
        '''

Chat templates are given a JSON schema, in the form that transformers makes of such a method.
"""

import inspect
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

from reasoning_from_scratch.errors import UserError

JSON_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean"}
JSON_TYPES |= {list: "array", tuple: "array", dict: "object", type(None): "null"}
SECTIONS = ("Args:", "Returns:", "Raises:")


def schema(method: Callable, where: str) -> dict:
    """What a chat template is given; `where` names the method in messages."""
    words = sections(inspect.getdoc(method) or "")
    if not words[""]:
        raise UserError(f"{where} is a tool without a docstring: say there what it does")
    try:
        hints = typing.get_type_hints(method)
    except Exception as error:  # a name that is not imported, in quotes
        raise UserError(f"{where} has type hints that cannot be read: {error}") from None
    described, properties, required = arguments(words["Args:"]), {}, []
    for one in inspect.signature(method).parameters.values():
        if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD):
            continue  # *more, **more: a call names its arguments
        if one.name not in hints:
            raise UserError(f"{where} has no type hint for {one.name}: a tool's arguments need one")
        properties[one.name] = json_type(hints[one.name])
        if one.name in described:
            properties[one.name]["description"] = described[one.name]
        required += [one.name] if one.default is one.empty else []
    parameters = {"type": "object", "properties": properties}
    parameters |= {"required": required} if required else {}
    tool = {"name": method.__name__, "description": words[""], "parameters": parameters}
    if result := json_type(hints["return"]) if "return" in hints else {}:
        said = {"description": words["Returns:"]} if words["Returns:"] else {}
        tool["return"] = result | said
    return {"type": "function", "function": tool}


def json_type(hint: Any) -> dict[str, Any]:
    """The JSON schema of a type hint; {} for a class that JSON knows nothing of."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        kinds = list(dict.fromkeys(JSON_TYPES.get(type(one), "string") for one in inner))
        return {"type": kinds[0] if len(kinds) == 1 else kinds, "enum": list(inner)}
    if origin in (typing.Union, types.UnionType):
        some = [json_type(one) for one in inner if one is not type(None)]
        schema = some[0] if len(some) == 1 else {"anyOf": some}
        if len(some) > 1 and all(list(one) == ["type"] for one in some):
            schema = {"type": sorted({one["type"] for one in some})}
        return schema | ({"nullable": True} if type(None) in inner else {})
    if origin is list and inner:
        return {"type": "array", "items": json_type(inner[0])}
    if origin is dict and inner:
        return {"type": "object", "additionalProperties": json_type(inner[1])}
    known = JSON_TYPES.get(origin or hint)
    return {"type": known} if known else {}


def sections(docstring: str) -> dict[str, str]:
    """The text of a Google-style docstring by its headings; what is before them by ""."""
    by_heading: dict[str, str] = dict.fromkeys(("", *SECTIONS), "")
    heading = ""
    for line in docstring.splitlines():
        if line.strip() in SECTIONS:
            heading = line.strip()
        else:
            by_heading[heading] += line + "\n"
    return {name: text.strip() if name != "Args:" else text for name, text in by_heading.items()}


def arguments(section: str) -> dict[str, str]:
    """`name: words`, or `name (type): words`; lines that are further in go on with the words."""
    lines = inspect.cleandoc("\n" + section).splitlines()
    explained: dict[str, str] = {}
    name = ""
    for line in lines:
        before, colon, words = line.partition(":")
        if colon and line[:1].strip():
            name = before.split("(")[0].strip()
            explained[name] = words.strip()
        elif name and line.strip():
            explained[name] += " " + line.strip()
    return explained


def in_plain_words(tool: Mapping) -> str:
    """For models without a form of their own: price(item: string, count: integer, optional): ..."""
    tool = tool["function"]
    properties, required = tool["parameters"]["properties"], tool["parameters"].get("required", [])
    names = [
        f"{name}: {kind_of(one)}" + ("" if name in required else ", optional")
        for name, one in properties.items()
    ]
    about = {name: one["description"] for name, one in properties.items() if "description" in one}
    words = " ".join([tool["description"], *(f"{name}: {said}" for name, said in about.items())])
    return f"{tool['name']}({', '.join(names)}): {' '.join(words.split())}"


def kind_of(schema: Mapping) -> str:
    """The type that a schema asks for, in a word or a few."""
    if "enum" in schema:
        return " or ".join(map(repr, schema["enum"]))
    if "anyOf" in schema:
        return " or ".join(map(kind_of, schema["anyOf"]))
    if schema.get("items"):
        return f"array of {kind_of(schema['items'])}"
    kinds = schema.get("type", "anything")
    return kinds if isinstance(kinds, str) else " or ".join(kinds)


# --- does a call fit? ---


def misfit(given: Mapping[str, Any], tool: Mapping) -> str:
    """What is wrong with the arguments of a call; "" if nothing is."""
    asked = tool["function"]["parameters"]
    known, required = asked["properties"], asked.get("required", [])
    for name in given:
        if name not in known:
            return f"there is no argument {name!r}; there is {', '.join(known) or 'none'}"
    for name in required:
        if name not in given:
            return f"the argument {name!r} is missing"
    for name, value in given.items():
        if not fits(value, known[name]):
            return f"{name} is to be {kind_of(known[name])}, not {value!r}"
    return ""


def fits(value: Any, schema: Mapping) -> bool:
    """Whether a value out of JSON is of the type that a schema asks for."""
    if value is None and schema.get("nullable"):
        return True
    if "anyOf" in schema:
        return any(fits(value, one) for one in schema["anyOf"])
    if "enum" in schema:
        return any(value == one and type(value) is type(one) for one in schema["enum"])
    kinds = schema.get("type", [])
    own = JSON_TYPES[type(value)]
    wanted = [kinds] if isinstance(kinds, str) else kinds
    if wanted and own not in wanted and not (own == "integer" and "number" in wanted):
        return False
    if isinstance(value, list):
        return all(fits(one, schema.get("items", {})) for one in value)
    if isinstance(value, dict):
        return all(fits(one, schema.get("additionalProperties", {})) for one in value.values())
    return True
