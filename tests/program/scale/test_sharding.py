"""What slices of a model cannot do is said. (That they train alike is in test_ranks.py.)"""

import pytest
from toy import toy_config

from reasoning_from_scratch.errors import UserError
from rfs.run.options import resolved


@pytest.mark.parametrize(
    "changes, says",
    [
        ({"optimizer": "muon"}, "--optimizer muon"),
        ({"compile": True}, "--compile"),
        ({"max_steps_off_policy": 1}, "--max-steps-off-policy"),
    ],
)
def test_what_cannot_be_sharded_is_said(tmp_path, changes, says):
    with pytest.raises(UserError, match=f"--shard fsdp and {says} do not work together"):
        resolved(toy_config(tmp_path, shard="fsdp", **changes))
