"""Questions about trees, and rewriting them."""

from .limits import TooBig

MAX_SIGNS = 16  # ways of choosing the signs of one answer


def contains(tree: tuple, names: set[str], outside_functions: bool = False) -> bool:
    """Whether a node of one of these names is in the tree."""
    stack = [tree]
    while stack:
        node = stack.pop()
        if node[0] in names:
            return True
        if not (outside_functions and node[0] == "fn"):
            stack += [part for part in node[1:] if isinstance(part, tuple)]
    return False


def symbols(tree: tuple) -> set[str]:
    found, stack = set(), [tree]
    while stack:
        node = stack.pop()
        if node[0] == "sym":
            found.add(node[1])
        stack += [part for part in node[1:] if isinstance(part, tuple) and part]
    return found


def without_degrees(tree: tuple) -> tuple:
    if tree[0] == "deg":
        return without_degrees(tree[1])
    if tree[0] == "fn" or not contains(tree, {"deg"}):
        return tree
    return (tree[0], *(without_degrees(p) if isinstance(p, tuple) else p for p in tree[1:]))


def with_signs(tree: tuple) -> list[tuple]:
    """The values of a tree with plus-minus signs. Each ± is free, unless there is a ∓, which
    ties all of them together."""
    if not contains(tree, {"pm", "mp"}):
        return [tree]
    if contains(tree, {"mp"}):
        return [tied(tree, 1), tied(tree, -1)]
    found = expanded(tree)
    if len(found) > MAX_SIGNS:
        raise TooBig
    return found


def tied(tree: tuple, sign: int) -> tuple:
    if tree[0] in ("pm", "mp"):
        inner = tied(tree[1], sign)
        return inner if (sign == 1) == (tree[0] == "pm") else ("neg", inner)
    return (tree[0], *(tied(p, sign) if isinstance(p, tuple) else p for p in tree[1:]))


def expanded(tree: tuple) -> list[tuple]:
    options: list[tuple] = [(tree[0],)]
    for part in tree[1:]:
        choices = expanded(part) if isinstance(part, tuple) else [part]
        options = [(*option, choice) for option in options for choice in choices]
        if len(options) > MAX_SIGNS:
            raise TooBig
    if tree[0] == "pm":
        return [sign for option in options for sign in (option[1], ("neg", option[1]))]
    return options


def name_of(tree: tuple) -> str | None:
    """What may stand left of "= 5" and be left out: x, f(x), x_1, AB, angle ABC, (x, y)."""
    if tree[0] == "sym":
        return tree[1]
    if tree[0] == "fn" and tree[1].startswith("@"):
        return f"{tree[1][1:]}({','.join(sorted(symbols(tree)))})"
    if tree[0] == "fn" and tree[1] == "abs" and len(name_of(tree[2]) or "") > 1:
        return name_of(tree[2])
    if tree[0] == "mul" and all(part[0] == "sym" for part in tree[1:]):
        parts = [part[1] for part in tree[1:]]
        if parts[0] == "m" and len(parts) == 2 and parts[1].startswith("angle"):
            return parts[1]
        return "".join(parts) if all(len(p) == 1 and p.isupper() for p in parts) else None
    if tree[0] == "div" and all(p[0] == "mul" and p[1] == ("sym", "d") for p in tree[1:]):
        return f"d{tree[1][2][1]}/d{tree[2][2][1]}"
    if tree[0] == "tuple" and all(item[0] == "sym" for item in tree[3:]):
        return "(" + ",".join(item[1] for item in tree[3:]) + ")"
    return None
