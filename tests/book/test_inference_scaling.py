"""The flags of ch06/inference_scaling.py; test_scripts.py runs it."""

from typing import get_args, get_type_hints

import inference_scaling
from inference_methods import METHODS


def test_every_method_can_be_asked_for_and_is_explained():
    known, _ = get_args(get_type_hints(inference_scaling.Options)["method"])
    assert list(get_args(known)) == [*METHODS, "rescore"]
    for name in get_args(known):
        kind, _, score = name.partition("_")
        assert f"{kind}: " in inference_scaling.__doc__ and score in inference_scaling.__doc__
