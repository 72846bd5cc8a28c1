"""A tool's schema: what the model is shown of a method, and whether a call matches it.

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
DOCSTRING_HEADINGS = ("Args:", "Returns:", "Raises:")


def tool_schema(method: Callable, where: str) -> dict:
    """What a chat template is given; `where` names the method in messages."""
    docstring = docstring_sections(inspect.getdoc(method) or "")
    if not docstring[""]:
        raise UserError(f"{where} is a tool without a docstring: say there what it does")
    try:
        hints = typing.get_type_hints(method)
    except Exception as error:  # a name that is not imported, in quotes
        raise UserError(f"{where} has type hints that cannot be read: {error}") from None
    descriptions, properties, required = argument_descriptions(docstring["Args:"]), {}, []
    for name, parameter in inspect.signature(method).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue  # *more, **more: a call names its arguments
        if name not in hints:
            raise UserError(f"{where} has no type hint for {name}: a tool's arguments need one")
        properties[name] = json_type(hints[name])
        if name in descriptions:
            properties[name]["description"] = descriptions[name]
        required += [name] if parameter.default is parameter.empty else []
    parameters = {"type": "object", "properties": properties}
    parameters |= {"required": required} if required else {}
    tool = {"name": method.__name__, "description": docstring[""], "parameters": parameters}
    if result := json_type(hints["return"]) if "return" in hints else {}:
        description = {"description": docstring["Returns:"]} if docstring["Returns:"] else {}
        tool["return"] = result | description
    return {"type": "function", "function": tool}


def json_type(hint: Any) -> dict[str, Any]:
    """The JSON schema of a type hint; {} for a class that JSON knows nothing of."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        names = list(dict.fromkeys(JSON_TYPES.get(type(value), "string") for value in arguments))
        return {"type": names[0] if len(names) == 1 else names, "enum": list(arguments)}
    if origin in (typing.Union, types.UnionType):
        schemas = [json_type(argument) for argument in arguments if argument is not type(None)]
        schema = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
        if len(schemas) > 1 and all(list(option) == ["type"] for option in schemas):
            schema = {"type": sorted({option["type"] for option in schemas})}
        return schema | ({"nullable": True} if type(None) in arguments else {})
    if origin is list and arguments:
        return {"type": "array", "items": json_type(arguments[0])}
    if origin is dict and arguments:
        return {"type": "object", "additionalProperties": json_type(arguments[1])}
    json_name = JSON_TYPES.get(origin or hint)
    return {"type": json_name} if json_name else {}


def docstring_sections(docstring: str) -> dict[str, str]:
    """Heading of a Google-style docstring -> its text; "" -> the text before the first heading."""
    texts: dict[str, str] = dict.fromkeys(("", *DOCSTRING_HEADINGS), "")
    heading = ""
    for line in docstring.splitlines():
        if line.strip() in DOCSTRING_HEADINGS:
            heading = line.strip()
        else:
            texts[heading] += line + "\n"
    return {name: text.strip() if name != "Args:" else text for name, text in texts.items()}


def argument_descriptions(section: str) -> dict[str, str]:
    """`name: words`, or `name (type): words`; an indented line continues the words before it."""
    lines = inspect.cleandoc("\n" + section).splitlines()
    descriptions: dict[str, str] = {}
    name = ""
    for line in lines:
        name_part, colon, description = line.partition(":")
        if colon and line[:1].strip():
            name = name_part.split("(")[0].strip()
            descriptions[name] = description.strip()
        elif name and line.strip():
            descriptions[name] += " " + line.strip()
    return descriptions


def describe_tool(tool: Mapping) -> str:
    """For chat templates without tools: price(item: string, count: integer, optional): ..."""
    tool = tool["function"]
    properties, required = tool["parameters"]["properties"], tool["parameters"].get("required", [])
    arguments = [
        f"{name}: {type_in_words(schema)}" + ("" if name in required else ", optional")
        for name, schema in properties.items()
    ]
    descriptions = [tool["description"]] + [
        f"{name}: {schema['description']}"
        for name, schema in properties.items()
        if "description" in schema
    ]
    words = " ".join(" ".join(descriptions).split())
    return f"{tool['name']}({', '.join(arguments)}): {words}"


def type_in_words(schema: Mapping) -> str:
    """The type that a schema requires, in words."""
    if "enum" in schema:
        return " or ".join(map(repr, schema["enum"]))
    if "anyOf" in schema:
        return " or ".join(map(type_in_words, schema["anyOf"]))
    if schema.get("items"):
        return f"array of {type_in_words(schema['items'])}"
    type_names = schema.get("type", "anything")
    return type_names if isinstance(type_names, str) else " or ".join(type_names)


# --- does a call match? ---


def argument_error(arguments: Mapping[str, Any], tool: Mapping) -> str:
    """A sentence if a call's arguments do not match the tool's schema; "" if they do."""
    parameters = tool["function"]["parameters"]
    properties, required = parameters["properties"], parameters.get("required", [])
    for name in arguments:
        if name not in properties:
            return f"there is no argument {name!r}; there is {', '.join(properties) or 'none'}"
    for name in required:
        if name not in arguments:
            return f"the argument {name!r} is missing"
    for name, value in arguments.items():
        if not matches_schema(value, properties[name]):
            return f"{name} is to be {type_in_words(properties[name])}, not {value!r}"
    return ""


def matches_schema(value: Any, schema: Mapping) -> bool:
    """Whether a value from JSON is of the type that a schema requires."""
    if value is None and schema.get("nullable"):
        return True
    if "anyOf" in schema:
        return any(matches_schema(value, option) for option in schema["anyOf"])
    if "enum" in schema:
        return any(value == option and type(value) is type(option) for option in schema["enum"])
    type_names = schema.get("type", [])
    allowed = [type_names] if isinstance(type_names, str) else type_names
    value_type = JSON_TYPES[type(value)]
    if value_type == "integer" and "number" in allowed:
        value_type = "number"
    if allowed and value_type not in allowed:
        return False
    if isinstance(value, list):
        return all(matches_schema(item, schema.get("items", {})) for item in value)
    if isinstance(value, dict):
        of_values = schema.get("additionalProperties", {})
        return all(matches_schema(item, of_values) for item in value.values())
    return True
